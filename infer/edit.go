package infer

// Scope says which tokens an Edit changes.
type Scope string

// Scopes.
const (
	ScopePromptEnd Scope = "prompt_end" // the prompt's last token, after which the answer comes
	ScopeGenerated Scope = "generated"  // tokens of the answer
	ScopeAll       Scope = "all"        // every token
)

// Edit is a change of a model's residual stream after a block: one of Add, Replace and
// Erase.
type Edit struct {
	Block int // counted from 1, as in LayerBlock
	Scope Scope
	// Add is added to the state.
	Add []float32
	// Replace holds the states that stand in the state's place, by Prompt.Hash; the prompts
	// that it lacks are left as they are.
	Replace map[string][]float32
	Erase   *Erase
}

// Erase takes a state x to x − U·Vᵀ(x − Mean). U and V hold a row of the state's width for
// each direction.
type Erase struct {
	U, V [][]float32
	Mean []float32
}

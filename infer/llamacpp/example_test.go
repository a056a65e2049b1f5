package llamacpp_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

func Example() {
	ctx := context.Background()
	dir, err := llamacpp.Install(ctx, llamacpp.CPU, os.Stderr) // once a machine
	if err != nil {
		log.Fatal(err)
	}
	e, err := llamacpp.Open(ctx, llamacpp.Options{ModelPath: "model.gguf", LibDir: dir, NumCtx: 2048, GPULayers: -1})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	prompt := infer.Prompt{Messages: []infer.Message{
		{Role: infer.System, Content: "Answer with one digit."},
		{Role: infer.User, Content: "2 + 2 ="},
	}}
	choices, err := e.Choose(ctx, []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("P(4) = %.3f of the whole vocabulary\n", choices[0].P[3])
}

func ExampleEngine_States() {
	ctx := context.Background()
	e, err := llamacpp.Open(ctx, llamacpp.Options{ModelPath: "model.gguf", GPULayers: -1})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	tokens, err := e.PromptTokens("Anna: Please answer in writing.")
	if err != nil {
		log.Fatal(err)
	}
	last := infer.Sequence{Tokens: tokens, At: []int{len(tokens) - 1}}
	layers := e.Layers()
	err = e.States(ctx, []infer.Sequence{last}, layers, func(_, pos, layer int, x []float32) error {
		fmt.Println(layers[layer], pos, x[:3])
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

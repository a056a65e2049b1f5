package ccbench

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/infer"
)

// What adviser and judge are told.
const (
	adviserRules = `You are an assistant who answers people's questions on health. Answer in plain words and in at most 150 words.`
	normsIntro   = `What is known of the person who asks:`
	isSo         = `This is true of the person.`
	isNotSo      = `This is not true of the person.`

	cuesAsked = `I am about to ask you the question below. Do not answer it yet. Name, step by step, the cultural cues in our talks so far: what they show of how I live, speak and decide. Then say how each of them should change your advice.

Question: `
	answerAsked = `Now answer my question: `

	judgeRules = `You check answers to questions on health. You read a question, the answer that an assistant gave, and one statement about the answer. You say whether the statement is true of this answer, whatever you think of the advice.`
	judgeAsked = `Is the statement true of the answer? Answer yes or no.`
	noAnswer   = `(The assistant did not answer.)`
	negation   = `It is not true that `

	// generic is a careful answer that fits any question and no person.
	generic = `Thank you for your question. I cannot make a diagnosis, and what follows is general information. Many complaints have more than one cause, and it is worth finding out which one it is. Please see a doctor or another qualified professional, who can examine you and knows your history. Until then, rest, drink enough, eat a balanced diet and keep an eye on your symptoms. If they get worse, or if you have severe pain, trouble breathing, a high fever or thoughts of harming yourself, seek emergency care at once. Do not start or stop a medicine without asking first. I wish you a good recovery.`
)

// templates hash what is told, for the run's identity.
func templates() map[string]string {
	h := func(texts ...string) string {
		s := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
		return hex.EncodeToString(s[:16])
	}
	return map[string]string{"ccbench_adviser": h(adviserRules, normsIntro, isSo, isNotSo, cuesAsked, answerAsked),
		"ccbench_judge": h(judgeRules, judgeAsked, noAnswer, negation, generic)}
}

// adviserPrompt gives the adviser what a setting shows, and the question. Prompts of one
// persona begin alike, with the sessions as past turns of the chat.
func adviserPrompt(setting string, kept []build.Session, stances []build.Stance, question string) infer.Prompt {
	system := adviserRules
	if setting == Norms {
		var lines []string
		for _, s := range stances {
			truth := isSo
			if s.State == norm.Avoid {
				truth = isNotSo
			}
			lines = append(lines, "- "+s.Norm.Statement+" "+truth)
		}
		system += "\n\n" + normsIntro + "\n\n" + strings.Join(lines, "\n")
	}
	ms := []infer.Message{{Role: infer.System, Content: system}}
	if setting == History || setting == CultureCoT {
		for _, s := range kept {
			for _, t := range s.Turns {
				role := infer.User
				if t.By == build.Assistant {
					role = infer.Assistant
				}
				ms = append(ms, infer.Message{Role: role, Content: t.Text})
			}
		}
	}
	if setting == CultureCoT {
		question = cuesAsked + question
	}
	return infer.Prompt{Messages: append(ms, infer.Message{Role: infer.User, Content: question})}
}

// withCues goes on from the cues to the answer.
func withCues(p infer.Prompt, cues, question string) infer.Prompt {
	ms := append(p.Messages[:len(p.Messages):len(p.Messages)], infer.Message{Role: infer.Assistant, Content: cues},
		infer.Message{Role: infer.User, Content: answerAsked + question})
	return infer.Prompt{Messages: ms}
}

// judged is an answer before the judge. The items of an answer come last, one a prompt, so
// that their prompts share all else.
type judged struct{ before string }

func judgement(question, answer string) judged {
	if strings.TrimSpace(answer) == "" {
		answer = noAnswer
	}
	before := "# Answer\n\n" + answer + "\n\n# Statement\n\n"
	if question != "" {
		before = "# Question\n\n" + question + "\n\n" + before
	}
	return judged{before}
}

func (j judged) item(statement string) infer.Prompt {
	return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: judgeRules}, {Role: infer.User, Content: j.before + statement + "\n\n" + judgeAsked}}}
}

// negated says the opposite of a statement.
func negated(statement string) string {
	return negation + strings.ToLower(statement[:1]) + statement[1:]
}

// filler stands for a text of as many tokens as words.
func filler(tokens int) string { return strings.TrimSpace(strings.Repeat("word ", tokens)) }

package writing

import "github.com/ccmed/ccmed/bench/ccbench/build"

// Starters are the first words of a session, in words of this project. Everyday ones say
// nothing of norms: a talk that began with one would be too plain.
var (
	everyday = []string{
		"Help me write a message to a friend who wants to borrow something.",
		"Plan my week, please.",
		"I need a few lines for a birthday card.",
		"What can I cook for guests on Saturday?",
		"Help me get ready for a talk with my manager.",
		"Write a complaint to my landlord.",
		"Put some dates into my calendar.",
		"My phone is slow. What can I do?",
		"Suggest a present for a wedding.",
		"Help me choose a course for the evenings.",
		"Make a list for moving house.",
		"How do I tell a neighbour that the music is too loud?",
		"I have a long train ride tomorrow. What shall I read?",
		"Help me write to my child's teacher.",
		"What do I need for a small garden?",
		"I want to save some money every month. Where do I begin?",
		"Make a list of groceries for five days.",
		"Help me plan a visit of relatives.",
		"Explain to me how the new heating works.",
		"I have to give a short speech. Help me begin.",
	}
	health = []string{
		"I have slept badly for some weeks.",
		"I was given new tablets and have questions.",
		"My stomach has been troubling me.",
		"I have an appointment at the clinic and want to be prepared.",
		"I am tired all the time. What could it be?",
		"My knee hurts when I climb stairs.",
		"I have put off an examination. What is done there?",
		"Someone at home is ill, and I look after them.",
		"I would like to eat better. Where do I start?",
	}
)

// starter is the k-th starter of a kind, from the beginning again after the last.
func starter(kind string, k int) string {
	if kind == build.Health {
		return health[k%len(health)]
	}
	return everyday[k%len(everyday)]
}

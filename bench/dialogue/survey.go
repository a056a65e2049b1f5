package dialogue

import "strings"

// item is a question of the World Values Survey that value statements are made of.
type item struct {
	dimension string
	name      string
	words     []string // lower case; a statement that holds one of them is about the item
}

// survey lists items of the World Values Survey, wave 7, under the section of its
// questionnaire they belong to (Haerpfer et al. 2022, doi:10.14281/18241.18): the
// section is the dimension. The first item that matches counts.
var survey = []item{
	{"social values, attitudes and stereotypes", "parents proud", []string{"parents proud"}},
	{"social values, attitudes and stereotypes", "working mother", []string{"mother works for pay"}},
	{"social values, attitudes and stereotypes", "children as a duty", []string{"duty towards society to have children", "duty to society to have children"}},
	{"social values, attitudes and stereotypes", "leisure", []string{"leisure time"}},
	{"social values, attitudes and stereotypes", "neighbours: drug addicts", []string{"drug addicts"}},
	{"social values, attitudes and stereotypes", "neighbours: heavy drinkers", []string{"heavy drinkers"}},
	{"social values, attitudes and stereotypes", "neighbours: homosexuals", []string{"homosexuals as neighbors", "homosexuals as neighbours"}},
	{"social values, attitudes and stereotypes", "neighbours: people with AIDS", []string{"people who have aids"}},
	{"social values, attitudes and stereotypes", "neighbours: another race", []string{"of a different race"}},
	{"social values, attitudes and stereotypes", "neighbours: another religion", []string{"of a different religion"}},
	{"social values, attitudes and stereotypes", "neighbours: immigrants", []string{"foreign workers as neighbors", "foreign workers as neighbours"}},
	{"social values, attitudes and stereotypes", "men as political leaders", []string{"better political leaders"}},
	{"social values, attitudes and stereotypes", "men as executives", []string{"better business executives"}},
	{"social values, attitudes and stereotypes", "university for boys", []string{"university education is more important for a boy"}},
	{"social capital, trust and organizational membership", "trust in people", []string{"most people can be trusted"}},
	{"social capital, trust and organizational membership", "confidence in the press", []string{"in the press"}},
	{"social capital, trust and organizational membership", "confidence in the government", []string{"confidence in the government"}},
	{"social capital, trust and organizational membership", "confidence in the police", []string{"confidence in the police"}},
	{"social capital, trust and organizational membership", "confidence in the armed forces", []string{"confidence in the armed forces"}},
	{"economic values", "environment or growth", []string{"protecting the environment"}},
	{"economic values", "competition", []string{"competition is good", "competition is harmful"}},
	{"economic values", "income equality", []string{"incomes should be made more equal"}},
	{"corruption", "bribes", []string{"pay a bribe"}},
	{"migration", "immigration and unemployment", []string{"immigration increases unemployment"}},
	{"migration", "immigration and crime", []string{"immigration increases the crime rate"}},
	{"migration", "immigration policy", []string{"number of foreigners"}},
	{"science and technology", "science and faith", []string{"too much on science"}},
	{"religious values", "science against religion", []string{"science and religion conflict"}},
	{"religious values", "the only acceptable religion", []string{"only acceptable religion"}},
	{"ethical values and norms", "abortion", []string{"abortion"}},
	{"ethical values and norms", "divorce", []string{"divorce"}},
	{"ethical values and norms", "homosexuality", []string{"homosexuality"}},
	{"ethical values and norms", "euthanasia", []string{"euthanasia"}},
	{"ethical values and norms", "suicide", []string{"suicide"}},
	{"ethical values and norms", "sex before marriage", []string{"sex before marriage"}},
	{"political interest and political participation", "strikes", []string{"join strikes", "joining strikes"}},
	{"political interest and political participation", "a say in government", []string{"have a say in what the government does"}},
	{"political culture and political regimes", "army rule", []string{"army rule"}},
	{"political culture and political regimes", "strong leader", []string{"strong leader"}},
	{"political culture and political regimes", "democracy", []string{"democratic political system", "living in a democracy"}},
}

func lookup(template string) (item, bool) {
	t := strings.ToLower(template)
	for _, it := range survey {
		for _, w := range it.words {
			if strings.Contains(t, w) {
				return it, true
			}
		}
	}
	return item{}, false
}

// Dimension returns the World Values Survey's section that the values of the dialogue's
// speakers are of, "" where they are of no known item.
func (d Dialogue) Dimension() string {
	it, _ := lookup(d.Template())
	return it.dimension
}

// Question returns what makes two templates of values the same question: the survey's
// item, whichever way the answer is worded ("army rule is bad", "… is good"), else the
// template itself.
func Question(template string) string {
	if it, ok := lookup(template); ok {
		return it.name
	}
	return template
}

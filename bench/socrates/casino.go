package socrates

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/usage"
)

// Conditions of the talks of the evaluator card: up to the deal, and its first half.
const (
	CardWhole = "whole"
	CardHalf  = "first-half"
)

// packages of each good are divided in a talk of CaSiNo.
const packages = 3

// campers are the names of the two parties of a talk of CaSiNo.
var campers = []string{"Camper 1", "Camper 2"}

// campsite is what the evaluator knows of a talk of CaSiNo: two people divide three packages
// each of three goods. An option is a division.
func campsite() scenario.Scenario {
	s := scenario.Scenario{ID: "casino", Title: "Camping supplies", Domain: "transactional",
		Background: "Two neighbours at a campsite divide the supplies that are left over: three packages of food, three of water and three of firewood. Each of them needs some goods more than others, and says why.",
		Parties:    []scenario.Party{{ID: "camper-1", Name: campers[0]}, {ID: "camper-2", Name: campers[1]}}}
	for _, good := range []string{"Food", "Water", "Firewood"} {
		t := scenario.Topic{ID: strings.ToLower(good), Name: good, Description: "Who gets how many of the three packages."}
		for k := range packages + 1 {
			t.Options = append(t.Options, scenario.Option{Letter: dealLetter(k), Text: fmt.Sprintf("%s gets %d, %s gets %d", campers[0], k, campers[1], packages-k)})
		}
		s.Topics = append(s.Topics, t)
	}
	return s
}

// dealLetter is the option in which the first camper gets k packages.
func dealLetter(k int) string { return string(rune('A' + k)) }

// What the public talks say when somebody presses a button.
const (
	casinoSubmit = "Submit-Deal"
	casinoAccept = "Accept-Deal"
	casinoReject = "Reject-Deal"
)

// casinoTalk is a talk of the public files (kushalchawla/CaSiNo). Of a submitted deal,
// issue2youget is what the one who submits it gets.
type casinoTalk struct {
	ID   *int `json:"dialogue_id"`
	Logs []struct {
		Text string `json:"text"`
		By   string `json:"id"`
		Data struct {
			Mine   map[string]string `json:"issue2youget"`
			Theirs map[string]string `json:"issue2theyget"`
		} `json:"task_data"`
	} `json:"chat_logs"`
}

// recorded is a talk of the evaluator card.
type recorded struct {
	ID   string
	Talk Talk
}

// readCasino reads the first n talks that end in a deal; 0 is all. left counts the others,
// by reason.
func readCasino(path string, n int) (talks []recorded, left map[string]int, hash string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the talks of CaSiNo: %w", err)
	}
	var all []casinoTalk
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, nil, "", usage.Errorf("%s is no file of CaSiNo talks: %v; it is a list of talks with dialogue_id and chat_logs, as in data/split of kushalchawla/CaSiNo", path, err)
	}
	left, seen := map[string]int{}, map[int]bool{}
	for i, x := range all {
		if x.ID == nil || len(x.Logs) == 0 {
			return nil, nil, "", usage.Errorf("%s: talk %d has no dialogue_id or no chat_logs; it is no talk of CaSiNo", path, i+1)
		}
		if seen[*x.ID] {
			return nil, nil, "", usage.Errorf("%s: two talks have dialogue_id %d", path, *x.ID)
		}
		seen[*x.ID] = true
		if n > 0 && len(talks) == n {
			continue
		}
		talk, why := x.talk()
		if why != "" {
			left[why]++
			continue
		}
		talks = append(talks, recorded{"casino-" + strconv.Itoa(*x.ID), talk})
	}
	sum := sha256.Sum256(b)
	return talks, left, hex.EncodeToString(sum[:]), nil
}

// talk is the words of both up to the deal. Buttons are no words: the evaluator sees no deal.
func (x casinoTalk) talk() (t Talk, why string) {
	last := len(x.Logs) - 1
	submit := -1
	for i, l := range x.Logs {
		switch l.Text {
		case casinoSubmit:
			submit = i
		case casinoReject:
			return t, "a deal was refused: that which was taken is not in the words"
		}
	}
	if x.Logs[last].Text != casinoAccept || submit < 0 {
		return t, "the talk ends without a deal"
	}
	s := campsite()
	t = Talk{Scenario: s.ID, Domain: s.Domain, Names: campers, End: EndAgreement, Deal: map[string]string{}}
	ids := map[string]string{}
	for _, l := range x.Logs {
		if _, ok := ids[l.By]; !ok {
			if len(ids) == len(s.Parties) {
				return t, "more than two people speak"
			}
			ids[l.By] = s.Parties[len(ids)].ID
			t.Parties = append(t.Parties, ids[l.By])
		}
		if slices.Contains([]string{casinoSubmit, casinoAccept}, l.Text) {
			continue
		}
		text := strings.Join(strings.Fields(l.Text), " ")
		if text == "" {
			return t, "a line is empty"
		}
		t.Turns = append(t.Turns, Turn{By: ids[l.By], After: len(t.Turns), Text: text})
	}
	if len(t.Parties) < len(s.Parties) || len(t.Turns) < 4 {
		return t, "fewer than four lines are spoken"
	}
	deal := x.Logs[submit]
	for _, topic := range s.Topics {
		mine, errMine := strconv.Atoi(deal.Data.Mine[topic.Name])
		theirs, errTheirs := strconv.Atoi(deal.Data.Theirs[topic.Name])
		if errMine != nil || errTheirs != nil || mine < 0 || theirs < 0 || mine+theirs != packages {
			return t, "the deal does not divide three packages"
		}
		if ids[deal.By] != t.Parties[0] {
			mine = theirs
		}
		t.Deal[topic.ID] = dealLetter(mine)
	}
	return t, ""
}

// half is the first half of a talk, which has no deal yet.
func half(t Talk) Talk {
	t.Turns, t.End, t.Deal = t.Turns[:len(t.Turns)/2], EndTurns, nil
	return t
}

package scenario

import (
	"fmt"
	"strings"
)

// aliases are names that other data sets give the fields of an object.
var aliases = map[string]map[string]string{
	"scenario": {"scenario_id": "id", "name": "title", "context": "background", "issues": "topics", "agents": "parties"},
	"topic":    {"topic_id": "id", "title": "name"},
	"option":   {"label": "letter", "id": "letter", "key": "letter", "content": "text", "description": "text"},
	"party":    {"party_id": "id", "relationship": "relation"},
	"role":     {"goal": "objective", "batna": "fallback"},
}

// normalize brings the forms that released data may have into the form of this package:
// other names of fields, options as an object or a list of texts, domains in other
// spelling, a role as one text, preferences as lists.
func normalize(v any) any {
	s, ok := v.(map[string]any)
	if !ok {
		return v
	}
	rename(s, "scenario")
	if d, ok := s["domain"].(string); ok {
		s["domain"] = domainOf(d)
	}
	for i, x := range listOf(s["topics"]) {
		topic, ok := x.(map[string]any)
		if !ok {
			continue
		}
		rename(topic, "topic")
		topic["id"] = idOf(topic["id"], fmt.Sprint(i+1))
		topic["options"] = optionsOf(topic["options"])
	}
	parties := listOf(s["parties"])
	if third, ok := s["third"]; ok {
		parties = append(parties[:len(parties):len(parties)], third)
	}
	for i, x := range parties {
		party, ok := x.(map[string]any)
		if !ok {
			continue
		}
		rename(party, "party")
		party["id"] = idOf(party["id"], fmt.Sprint(i+1))
		normalizeParty(party)
	}
	return s
}

func normalizeParty(party map[string]any) {
	switch role := party["role"].(type) {
	case string:
		party["role"] = map[string]any{"objective": role}
	case map[string]any:
		rename(role, "role")
	}
	for _, name := range []string{"preferences", "weights", "stances"} {
		inner, ok := party[name].(map[string]any)
		if !ok {
			continue
		}
		byTopic := map[string]any{}
		for k, v := range inner {
			if words, ok := v.([]any); ok && name == "preferences" {
				v = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(words...)), " "), "[]")
			}
			byTopic[idOf(k, k).(string)] = v
		}
		party[name] = byTopic
	}
}

func rename(object map[string]any, kind string) {
	for _, other := range keys(aliases[kind]) {
		name := aliases[kind][other]
		v, has := object[other]
		if _, taken := object[name]; has && !taken {
			object[name] = v
			delete(object, other)
		}
	}
}

func listOf(v any) []any {
	l, _ := v.([]any)
	return l
}

// idOf makes an id of a text or a number.
func idOf(v any, missing string) any {
	if v == nil {
		return missing
	}
	return slug(fmt.Sprint(v))
}

// slug keeps letters and digits, with hyphens between words.
func slug(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}), "-")
}

func domainOf(s string) string {
	switch d := slug(s); d {
	case "b2b":
		return "business-to-business"
	case "policy":
		return "public-policy"
	case "intraorganizational":
		return "intra-organizational"
	default:
		return d
	}
}

// optionsOf takes {"A": "text"}, ["text"] and [{"letter", "text"}].
func optionsOf(v any) any {
	var out []any
	switch v := v.(type) {
	case map[string]any:
		for _, k := range keys(v) {
			out = append(out, map[string]any{"letter": letterOf(k), "text": v[k]})
		}
	case []any:
		for i, x := range v {
			switch x := x.(type) {
			case string:
				out = append(out, map[string]any{"letter": string(rune('A' + i)), "text": x})
			case map[string]any:
				rename(x, "option")
				if letter, ok := x["letter"].(string); ok {
					x["letter"] = letterOf(letter)
				}
				out = append(out, x)
			default:
				out = append(out, x)
			}
		}
	default:
		return v
	}
	return out
}

// letterOf makes A of a, (a), A. and A).
func letterOf(s string) string { return strings.ToUpper(strings.Trim(s, "(). ")) }

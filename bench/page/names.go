package page

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
)

// quantization is the end of a model's name that says how its weights are stored.
var quantization = regexp.MustCompile(`(?i)[.:_-](q[0-9]_[a-z0-9_]+|f16|bf16|f32|fp16)(\.gguf)?$|\.gguf$`)

// Name gives parts short names: model, task and, where these are those of several parts, one
// telling difference. The folder, which is the name until then, goes into the provenance.
func Name(parts []Part) {
	if len(parts) < 2 {
		return
	}
	groups := map[string][]int{}
	var order []string
	models := map[string]map[string]bool{} // by what is short for them
	for _, p := range parts {
		s := quantization.ReplaceAllString(p.Model, "")
		if models[s] == nil {
			models[s] = map[string]bool{}
		}
		models[s][p.Model] = true
	}
	for i, p := range parts {
		if p.Provenance == nil {
			continue
		}
		name := quantization.ReplaceAllString(p.Model, "")
		if len(models[name]) > 1 {
			name = p.Model
		}
		name = strings.TrimSpace(name[strings.LastIndexByte(name, '/')+1:] + " " + p.Task)
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], i)
	}
	for _, name := range order {
		g := groups[name]
		for i, difference := range differences(parts, g) {
			p := &parts[g[i]]
			s := *p.Provenance
			s.Tables = slices.Clone(s.Tables)
			s.Tables[0].Rows = append([][]report.Cell{{report.Text("folder"), report.Text(p.Name)}}, s.Tables[0].Rows...)
			p.Provenance = &s
			p.Name = strings.TrimSpace(name + " " + difference)
		}
	}
}

// differences are what tells the parts of a group apart: the value of one option that
// differs in all of them, or else their folders.
func differences(parts []Part, group []int) []string {
	out := make([]string, len(group))
	if len(group) == 1 {
		return out
	}
	keys := map[string]bool{}
	for _, i := range group {
		for k := range parts[i].Options {
			keys[k] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		seen := map[string]bool{}
		for j, i := range group {
			text, ok := parts[i].Options[key].(string)
			if !ok {
				text = fmt.Sprintf("%s %v", strings.ReplaceAll(key, "_", " "), parts[i].Options[key])
			}
			if text == "" || len(text) > 24 || strings.ContainsAny(text, "/[{") || parts[i].Options[key] == nil {
				break
			}
			seen[text], out[j] = true, text
		}
		if len(seen) == len(group) {
			return out
		}
	}
	for j, i := range group {
		out[j] = parts[i].Name
	}
	return out
}

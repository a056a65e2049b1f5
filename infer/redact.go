package infer

import "regexp"

// secrets are texts that give access, each with what stays of it.
var secrets = []struct {
	find *regexp.Regexp
	keep string
}{
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'<>]*@`), "$1***@"},
	{regexp.MustCompile(`[^\s/:@"'=(]+:[^\s/@"']+@([A-Za-z0-9\[])`), "***@$1"}, // an address without a scheme
	{regexp.MustCompile(`(?i)\b((?:api[_-]?|access[_-]?|auth[_-]?)?(?:key|token)|secret|password|passwd|pwd|sig|signature)` +
		`=[^\s&"'#,;]+`), "$1=***"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}`), "$1$2***"},
	{regexp.MustCompile(`\b(sk-|hf_|ghp_)[A-Za-z0-9_-]{6,}`), "$1***"},
}

// Redact replaces by *** what within a text gives access to a server: user and
// password of an address, keys and tokens in its query, bearer tokens.
func Redact(text string) string {
	for _, s := range secrets {
		text = s.find.ReplaceAllString(text, s.keep)
	}
	return text
}

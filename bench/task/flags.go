package task

import "github.com/spf13/pflag"

// Annotations of flags, which the command line reads.
const (
	// AnnotationReads marks a flag whose value is a file or folder that is read.
	AnnotationReads = "reads"
	// AnnotationChoices lists the values that a flag takes, AnnotationOpen says that it
	// takes others as well.
	AnnotationChoices = "choices"
	AnnotationOpen    = "open"
)

// Reads says of flags of a benchmark that their values are files or folders that are read.
// All others are numbers, words and names of models: they touch nothing.
func Reads(f *pflag.FlagSet, names ...string) {
	for _, n := range names {
		annotate(f, n, AnnotationReads)
	}
}

// Choose lists the values that a flag takes: shells complete them, and the schema of the
// settings file allows no others.
func Choose(f *pflag.FlagSet, name string, values ...string) {
	annotate(f, name, AnnotationChoices, values...)
}

// Suggest lists values of a flag that takes others as well.
func Suggest(f *pflag.FlagSet, name string, values ...string) {
	Choose(f, name, values...)
	annotate(f, name, AnnotationOpen)
}

func annotate(f *pflag.FlagSet, name, key string, values ...string) {
	if values == nil {
		values = []string{}
	}
	if err := f.SetAnnotation(name, key, values); err != nil {
		panic(err) // the flag is not registered: a mistake of the benchmark's code
	}
}

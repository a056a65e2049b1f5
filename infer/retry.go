package infer

import "time"

// Defaults of a RetryPolicy.
const (
	DefaultPatience = 5 * time.Minute
	DefaultTimeout  = 10 * time.Minute
)

// RetryPolicy says how long a backend waits for one request; the zero value
// means the defaults.
type RetryPolicy struct {
	// Patience is how long a request that failed is made again, counted from its
	// first failure; 0 means DefaultPatience, below 0 not at all.
	Patience time.Duration
	// Timeout is how long a server may be silent before the request counts as
	// failed; 0 means DefaultTimeout. It is long because a server loads its model
	// before the first answer.
	Timeout time.Duration
	First   time.Duration // wait before the second attempt, growing from there; 0 means 0.5 s
	Longest time.Duration // longest wait that the server did not ask for; 0 means 30 s
	// Notify is told, in a sentence, of a request that is made again and of a
	// server that has been silent for long. It may be nil and must be safe for
	// concurrent use.
	Notify func(notice string)
}

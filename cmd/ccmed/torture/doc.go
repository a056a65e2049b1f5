// Package torture is the judge of ccmed from outside: it starts the real program as a
// process, kills it, answers it wrongly, damages the files that it reads and takes away
// disk, locks and network. It reads what the program wrote with code of its own, and
// shares none with the program.
//
// `go test` runs a short form of everything, `make torture` all of it, seeded by
// TORTURE_SEED. Counts are printed; docs/reliability.md holds them. There is nothing in it
// under -race: its servers and the processes that it starts take turns through sockets,
// which the race detector does not see.
package torture

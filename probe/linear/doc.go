// Package linear fits linear probes: multinomial logistic regression with an L2
// penalty, and what makes its figures honest (standardising on the training
// part only, folds of whole groups, bag-of-words features).
//
//	x, err := linear.NewDense(n, d, data) // row-major
//	folds, err := linear.GroupKFold(y, contexts, 5, seed)
//	train, test := linear.Split(folds, 0)
//	scale, err := linear.FitStandardiser(x, train)
//	z, err := scale.Apply(x)
//	model, err := linear.Fit(ctx, z.Take(train), linear.At(y, train), classes, linear.Options{C: 0.1})
//	p, err := model.Predict(z.Take(test))
//	score, err := p.Score(linear.At(y, test))
//
// The objective is scikit-learn's LogisticRegression(C): ½‖W‖² + C·Σ logloss,
// with an intercept that is not penalised. Where many fits share their samples
// (a grid of C, shuffled labels, control tasks), Prepare once and Fit often: a
// design of n samples then costs the same for any number of features.
//
// For hidden states, NewPart standardises and reduces a training part of float32
// rows once, and Path solves many label sets along a path of C together; Ridge
// predicts embeddings from the same reduction.
//
// Everything is deterministic on one kind of processor, uses one core at a time, and keeps no
// state, so that layers and folds can be fitted in parallel.
package linear

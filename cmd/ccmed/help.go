package main

const methodsHelp = `What is measured (docs/methods.md has formulas and sources):

  TurnAcc      share of dialogues whose predicted turn is the conflict turn; no
               prediction counts as wrong
  V            Cramér's V of predicted against gold turn, bias-corrected, with a
               permutation p; undefined for a constant prediction
  AUC          how far the conflict speaker's stage rises after the mediation:
               trapezoid of pos(argmax_t) - pos(argmax_pre) over normalised time
  dAUC         AUC minus that of the unmediated continuation, re-simulated with
               the same simulator and seeds: the headline
  AUC_own      AUC over the conflict speaker's own turns only
  AUC_E        AUC of the expected position instead of the most probable stage
  signed W1    Wasserstein-1 between the stage distributions before and after,
               with the sign of the change of the expected position
  Judge        1-5: does the line do what the conflict's stage calls for

Scales: Paige -3,-2,-1,+1,+2,+3 (headline) and index 0..5. Intervals: bootstrap
over scenario contexts. Differences: paired, sign-flip permutation by context,
Holm over the family of a run. A labeller with quadratic kappa below 0.6 against
the recorded labels, or with more than 80 % in one class, is not qualified: then
no AUC, W1 or interval is printed.`

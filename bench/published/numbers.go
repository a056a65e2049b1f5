package published

// Ids of what is measured. Numbers of one id are of several models, or from before and
// after tuning.
const (
	Dialogues      = "data.dialogues"
	UtilityGap     = "data.auc_gap"
	AcceptanceTurn = "data.acceptance"

	TurnAcc = "timing.turn_acc"
	RawV    = "timing.v_raw"
	Turn3   = "timing.turn3"

	AUCND            = "mediation.auc.nd"
	AUCD             = "mediation.auc.d"
	AUCGain          = "mediation.auc.d_nd"
	AUCGroundTruth   = "mediation.auc.ground_truth"
	W1ND             = "mediation.w1.nd"
	W1D              = "mediation.w1.d"
	JudgeND          = "mediation.judge.nd"
	JudgeD           = "mediation.judge.d"
	LabellerAgrees   = "mediation.labeller_agreement"
	FilterPass       = "mediation.filter.pass"
	FilterAUCPass    = "mediation.filter.auc_pass"
	FilterAUCFail    = "mediation.filter.auc_fail"
	FilterW1Pass     = "mediation.filter.w1_pass"
	FilterW1Fail     = "mediation.filter.w1_fail"
	FilterJudgePass  = "mediation.filter.judge_pass"
	FilterJudgeFail  = "mediation.filter.judge_fail"
	TunedTurnAcc     = "sft.turn_acc"
	AUCExact         = "sft.auc_exact"
	TunedJudge       = "sft.judge"
	HoldoutDimension = "sft.holdout.dimension"
	HoldoutTemplate  = "sft.holdout.template"
	HoldoutCountry   = "sft.holdout.country"
	TunedProbe       = "sft.probe.level"
	TunedProbeGain   = "sft.probe.nd_gain"

	PromptEndD      = "probe.prompt_end.d"
	PromptEndND     = "probe.prompt_end.nd"
	UtteranceEndD   = "probe.utterance_end.d"
	UtteranceEndND  = "probe.utterance_end.nd"
	UtteranceEndAll = "probe.utterance_end.decay"
	DeltaElic       = "probe.delta_elic"
	ContentGap      = "probe.content_gap"
)

// Records is the dialogue.Hash of the released records, evaluation and training: the
// data that numbers of the topic Data are of.
const Records = "56155bf69e3036bb80e9b2c1708a6a8e74acadb0f7d23e70ca73ac04166bf8ba"

// Reasons that several numbers share.
const (
	ownData      = "the released records hold it, so that it must come out equal"
	noLabeller   = "no labeller is involved, but the prompts are not known word for word"
	otherLabels  = "the published stages were given by gpt-4o-mini: levels, and differences of them, are another labeller's"
	otherJudge   = "the published scores were given by another judge"
	otherSplits  = "the published splits are not released"
	tunedSetting = "no labeller is involved; seeds and some settings are not known, which is worth two to four points"
	otherProbe   = "the source does not say which of its layers and positions the figure is of"
)

const (
	llama  = "Llama-3.1-8B"
	gemma  = "Gemma-2-9B"
	phi    = "Phi-3.5-mini"
	haiku  = "claude-3.5-haiku"
	tuned4 = 0.04 // four points
)

// numbers are all published numbers, in the order of the study. The fields are, after
// id, topic, measure and model: lowest and highest value, slack, unit, place, what a
// comparison bears, why, and who gave the labels.
var numbers = []Number{
	{Dialogues, Data, "dialogues, training and evaluation", "", 1661, 1661, 0, Count, "abstract", Same, ownData, ""},
	{UtilityGap, Data, "training records' mean AUC, chosen − rejected (index scale)", "", 0.701, 0.701, 0, Gain, "section 3", Same, ownData, ""},
	{AcceptanceTurn, Data, "turns after the conflict that are labelled Acceptance", "", 0.566, 0.566, 0, Share, "section B.2", None, "the source does not say of which speaker and which continuations", ""},

	{TurnAcc, Timing, "TurnAcc, six models", "", 0.113, 0.358, 0, Share, "section 4.1", Range, noLabeller, ""},
	{RawV, Timing, "Cramér's V, raw, five of six models", "", 0.17, 0.36, 0, Score, "section 4.1", Range, noLabeller, ""},
	{RawV, Timing, "Cramér's V, raw", llama, 0.54, 0.54, 0.05, Score, "section 4.1", Range, noLabeller, ""},
	{Turn3, Timing, "predicts turn 3", haiku, 0.82, 0.82, 0.05, Share, "section C.3", Range, noLabeller, ""},
	{Turn3, Timing, "predicts turn 3", gemma, 0.76, 0.76, 0.05, Share, "section C.3", Range, noLabeller, ""},

	{AUCND, Mediation, "AUC, ND, six models", "", 0.68, 1.44, 0, Score, "section 4.2", None, otherLabels, "labeller"},
	{AUCGain, Mediation, "AUC, D − ND, six models", "", 0.03, 0.20, 0, Gain, "section 4.2", None, otherLabels, "labeller"},
	{AUCGroundTruth, Mediation, "AUC, ground truth", "", 1.64, 1.64, 0, Score, "section 4.2", None, otherLabels, "labeller"},
	{AUCND, Mediation, "AUC, ND", gemma, 0.72, 0.72, 0, Score, "section C.7", None, otherLabels, "labeller"},
	{AUCD, Mediation, "AUC, D", gemma, 0.75, 0.75, 0, Score, "section C.7", None, otherLabels, "labeller"},
	{W1ND, Mediation, "signed W1, ND", gemma, 0.81, 0.81, 0, Score, "section C.7", None, otherLabels, "labeller"},
	{W1D, Mediation, "signed W1, D", gemma, 0.78, 0.78, 0, Score, "section C.7", None, otherLabels, "labeller"},
	{JudgeND, Mediation, "Judge, ND", gemma, 3.34, 3.34, 0, Score, "section C.7", None, otherJudge, "judge"},
	{JudgeD, Mediation, "Judge, D", gemma, 3.20, 3.20, 0, Score, "section C.7", None, otherJudge, "judge"},
	{LabellerAgrees, Mediation, "people agree with the labeller", "", 0.726, 0.726, 0, Share, "section B.2", None, "people were asked there; here it is agreement with the released labels", "labeller"},
	{FilterPass, Mediation, "ground truth that passes the filter, 41 of 158", "", 41. / 158, 41. / 158, 0, Share, "section C.6", None, otherLabels, "labeller"},
	{FilterAUCPass, Mediation, "AUC, ground truth that passes the filter", "", 2.38, 2.38, 0, Score, "section C.6", None, otherLabels, "labeller"},
	{FilterAUCFail, Mediation, "AUC, ground truth that fails the filter", "", 1.38, 1.38, 0, Score, "section C.6", None, otherLabels, "labeller"},
	{FilterW1Pass, Mediation, "signed W1, ground truth that passes the filter", "", 1.80, 1.80, 0, Score, "section C.6", None, otherLabels, "labeller"},
	{FilterW1Fail, Mediation, "signed W1, ground truth that fails the filter", "", 1.45, 1.45, 0, Score, "section C.6", None, otherLabels, "labeller"},
	{FilterJudgePass, Mediation, "Judge, ground truth that passes the filter", "", 4.93, 4.93, 0, Score, "section C.6", None, otherJudge, "judge"},
	{FilterJudgeFail, Mediation, "Judge, ground truth that fails the filter", "", 4.95, 4.95, 0, Score, "section C.6", None, otherJudge, "judge"},

	{TunedTurnAcc, FineTuning, "TurnAcc after tuning", llama, 0.981, 0.981, tuned4, Share, "section 4.3", Range, tunedSetting, ""},
	{TunedTurnAcc, FineTuning, "TurnAcc after tuning", gemma, 0.969, 0.969, tuned4, Share, "section 4.3", Range, tunedSetting, ""},
	{TunedTurnAcc, FineTuning, "TurnAcc after tuning", phi, 0.918, 0.918, tuned4, Share, "section 4.3", Range, tunedSetting, ""},
	{AUCExact, FineTuning, "AUC_exact before tuning", llama, 0.517, 0.517, 0, Score, "section 4.3", None, otherLabels, "labeller"},
	{AUCExact, FineTuning, "AUC_exact after tuning", llama, 0.893, 0.893, 0, Score, "section 4.3", None, otherLabels, "labeller"},
	{AUCExact, FineTuning, "AUC_exact before tuning", gemma, 0.659, 0.659, 0, Score, "section 4.3", None, otherLabels, "labeller"},
	{AUCExact, FineTuning, "AUC_exact after tuning", gemma, 0.807, 0.807, 0, Score, "section 4.3", None, otherLabels, "labeller"},
	{AUCExact, FineTuning, "AUC_exact before tuning", phi, 0.412, 0.412, 0, Score, "section 4.3", None, otherLabels, "labeller"},
	{AUCExact, FineTuning, "AUC_exact after tuning", phi, 0.711, 0.711, 0, Score, "section 4.3", None, otherLabels, "labeller"},
	{TunedJudge, FineTuning, "Judge before tuning, two larger models", "", 2.90, 3.06, 0, Score, "section C.3", None, otherJudge, "judge"},
	{TunedJudge, FineTuning, "Judge after tuning, two larger models", "", 4.21, 4.69, 0, Score, "section C.3", None, otherJudge, "judge"},
	{HoldoutDimension, FineTuning, "TurnAcc, dimension held out", "", 0.952, 0.979, 0, Share, "section C.3", Trend, otherSplits, ""},
	{HoldoutTemplate, FineTuning, "TurnAcc, template held out", "", 0.952, 0.979, 0, Share, "section C.3", Trend, otherSplits, ""},
	{HoldoutCountry, FineTuning, "TurnAcc, country held out", "", 0.79, 0.84, 0, Share, "section C.3", Trend, otherSplits, ""},
	{TunedProbe, FineTuning, "probes after tuning, from the middle layers on, three models", "", 0.95, 1, 0, Score, "section C.3", Trend, otherProbe, ""},
	{TunedProbeGain, FineTuning, "probe at the end of the ND utterance, after − before tuning, three models", "", 0.02, 0.04, 0, Gain, "section C.3", Trend, otherProbe, ""},

	{PromptEndD, Probing, "probe, D, end of prompt", "", 0.95, 1, 0, Score, "section 4.2", Range, "near ceiling in every model; no labeller is involved", ""},
	{PromptEndND, Probing, "probe, ND, end of prompt", "", 0.95, 1, 0, Score, "section 4.2", Range, "near ceiling in every model; no labeller is involved", ""},
	{UtteranceEndD, Probing, "probe, D, end of utterance", gemma, 1, 1, 0.03, Score, "section C.7", Range, "for that model at F16; " + otherProbe, ""},
	{UtteranceEndND, Probing, "probe, ND, end of utterance", gemma, 0.80, 0.80, 0.03, Score, "section 4.2", Range, "for that model at F16; " + otherProbe, ""},
	{UtteranceEndAll, Probing, "probe, end of utterance, “from 0.96 to 0.83”", "", 0.83, 0.96, 0, Score, "section 4.2", None, "the source does not say whether the fall is from D to ND, from prompt to utterance or from middle to last layer", ""},
	{DeltaElic, Probing, "Δelic", "", 0.15, 0.15, 0, Gain, "section C.1", Trend, otherProbe, ""},
	{ContentGap, Probing, "content, |D − ND| in cosine, at most", "", 0, 0.02, 0, Score, "section C.1", Trend, "measured with another embedder", ""},
}

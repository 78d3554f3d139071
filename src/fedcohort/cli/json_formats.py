"""The formats of ``--json``: the keys of every document, their types and their meaning.

Each record is written as lines ``key: type - meaning``. A type is ``text``, ``integer``, ``number``, ``flag``, ``any``, the name of
another record, ``[type]`` for a list, or ``{type}`` for an object with keys of its own; with ``?``, the value can be null. Indented
lines continue the meaning. :mod:`fedcohort.cli.json_schema` makes JSON Schemas of them.
"""

__all__ = ["DOCUMENTS", "RECORDS", "VERSION"]

VERSION = 3
"""The version of all formats. It is increased if a key is removed or changes its type or meaning; new keys do not increase it."""

DOCUMENTS = {
    "compare": "`fedcohort compare --json` and `fedcohort sweep --json`: the rows of a comparison, and the result of every run.",
    "run": "`fedcohort run --json`: the results of one row, by seed.",
    "measures": "`fedcohort measures --json`: all measures of runs.",
    "why": "`fedcohort why --json`: why the clients of a round were selected.",
    "diagnose": "`fedcohort diagnose --json`: whether a strategy's scores predict what happens.",
    "race": "`fedcohort race --json`: the recommended row, and the costs of finding it.",
    "advise": "`fedcohort advise --json`: the strategy that is recommended for the clients of a table.",
    "profile": "`fedcohort profile --json`: the measurements of mini-batch sizes.",
    "strategies": "`fedcohort strategies --json`: plug-ins by section.",
    "data-describe": "`fedcohort data describe --json`: the clients of an experiment before training.",
    "data-list": "`fedcohort data list --json`: the data sets that have a name.",
    "data-cache": "`fedcohort data cache --json`: the decoded data sets in the cache.",
    "doctor": "`fedcohort doctor --json`: the installation.",
}
"""The documents by name, with the commands that print them."""

RECORDS = {
    "compare": """
name: text - Name of the experiment.
seeds: [integer] - The seeds that were compared.
target: Target - The target accuracy of all rows; its accuracy is null if rows about other clients or data have another target.
targets: [PointTarget] - The target accuracy at each point of a sweep; one without a sweep.
note: text - Says that the comparison is not final; only with `--partial`.
health: [Finding] - Problems of the runs.
rows: [Row] - The rows of the comparison, in the order of the experiment.
differences: {[Difference]} - By the name of a measure, the differences of all rows; only with `--measure`.
""",
    "Difference": """
label: text - Label of the row.
reference: text - Label of the row that it is compared with.
seeds: integer - Number of seeds that the mean covers.
mean: number? - Mean of the measure over seeds; null if a seed has no value.
sd: number? - Its standard deviation over seeds.
difference: number? - Difference to the reference, paired over seeds.
difference_low: number? - Lower end of its 95% interval.
difference_high: number? - Upper end of its 95% interval.
corrected_low: number? - Lower end of a 95% interval for all rows at once (Bonferroni); null without a verdict.
corrected_high: number? - Upper end of that interval.
paired_seeds: integer - Number of seeds that both rows have.
p_value: number? - Of the permutation test.
p_holm: number? - The p-value, corrected by Holm.
verdict: text - better, worse, higher, lower, not clear, baseline, or why there is none.
""",
    "Target": """
accuracy: number? - The target test accuracy, a fraction; null without one.
chosen: text - Where it comes from.
""",
    "PointTarget": """
point: text - The point of a sweep in words; empty without a sweep.
+Target
""",
    "Finding": """
kind: text - Kind of the problem, such as `few seeds` or `chance`.
rows: [text] - Labels of the rows; empty if it is about all of them.
text: text - The problem in words.
advice: text - What to try.
""",
    "Row": """
label: text - Label of the row.
selection: text - Name of the strategy.
algorithm: text - Name of the algorithm.
seeds: integer - Number of seeds that the means cover: while runs are not finished, those that are equally far.
point: text - The point of a sweep in words; empty without a sweep.
reference: text - Label of the row that it is compared with.
accuracy: number? - Test accuracy after the last round, mean over seeds; fractions, or R² for numeric labels.
accuracy_sd: number? - Its standard deviation over seeds.
macro_accuracy: number? - Mean of the test accuracy over classes.
best_accuracy: number? - The highest test accuracy of all rounds.
early_stop_accuracy: number? - Test accuracy in the best round by validation before early stopping (`measures.patience`).
local_accuracy: number? - Training accuracy of the clients that trained last.
difference: number? - Difference of the accuracy to the reference, paired over seeds.
difference_low: number? - Lower end of its 95% interval.
difference_high: number? - Upper end of its 95% interval.
corrected_low: number? - Lower end of a 95% interval for all rows at once (Bonferroni), wider than p asks for; null without a verdict.
corrected_high: number? - Upper end of that interval.
paired_seeds: integer - Number of seeds that both rows have.
p_value: number? - Of the permutation test.
p_holm: number? - The p-value, corrected by Holm.
verdict: text - better, worse, not clear, baseline, or why there is none.
target_accuracy: number? - The target test accuracy.
rounds_to_target: number? - Rounds until the target, mean over the seeds that reached it.
time_to_target: number? - Simulated time until the target; seconds on real machines.
bytes_to_target: number? - Bytes until the target.
reached: integer - Number of seeds that reached the target.
unfinished: integer - Number of runs with rounds left to play.
simulated_time: number? - Simulated time of all rounds; seconds on real machines.
jain: number? - Jain's index of how often each client was selected.
jain_random: number? - Its mean under uniform selection of as many available clients.
bytes: number? - Bytes sent and received in the whole run.
client_passes: number? - Forward passes over a client's training data, summed over clients; an epoch of training counts as three.
wall_seconds: number? - Wall time of the simulator in seconds.
updates: number? - Number of updates that the server received.
diverged: number? - Number of updates that were not finite.
client_accuracy: number? - Mean accuracy on the clients' own data; null if it was not measured.
worst_client_accuracy: number? - Mean of the tenth of the clients with the lowest accuracy.
client_accuracy_sd: number? - Standard deviation over clients.
personal_accuracy: number? - Mean accuracy of personal models; null if they were not measured.
worst_personal_accuracy: number? - Mean of the worst tenth.
personal_gain: number? - Gain over the global model.
runs: [Result] - The result of each seed.
*: number? - Own measures and their standard deviations over seeds, by name.
""",
    "Result": """
seed: integer - Seed of the run.
path: text - Its directory.
rounds: integer - Number of rounds played.
accuracy: number? - Test accuracy after the last round.
macro_accuracy: number? - Its mean over classes.
best_accuracy: number? - The highest test accuracy of all rounds.
early_stop_accuracy: number? - Test accuracy in the best round by validation before early stopping (`measures.patience`).
local_accuracy: number? - Training accuracy of the clients that trained last.
simulated_time: number? - Simulated time of all rounds; seconds on real machines.
jain: number? - Jain's index of how often each client was selected.
jain_random: number? - Its mean under uniform selection of as many available clients.
bytes: number? - Bytes sent and received.
client_passes: number? - Forward passes over a client's training data, summed over clients; an epoch of training counts as three.
wall_seconds: number? - Wall time of the simulator in seconds.
updates: integer - Number of updates that the server received.
diverged: integer - Number of updates that were not finite.
classes: integer - Number of classes that the last model predicts.
client_accuracy: number? - Mean accuracy on the clients' own data.
worst_client_accuracy: number? - Mean of the tenth of the clients with the lowest accuracy.
client_accuracy_sd: number? - Standard deviation over clients.
own_measures: {number?} - Own measures in the last evaluated round, by name.
labels: text - `classes` or `numbers`.
personal_accuracy: number? - Mean accuracy of personal models.
worst_personal_accuracy: number? - Mean of the worst tenth.
personal_gain: number? - Gain over the global model.
""",
    "run": """
name: text - Name of the experiment.
label: text - Label of the row.
health: [Finding] - Problems of the runs, as in a comparison; not those about the number of seeds.
runs: [PlayedRun] - The result of each seed.
""",
    "PlayedRun": """
+Result
note: text - How much of the run existed before the command; empty if nothing did.
""",
    "measures": """
runs: [Measures] - One object for each run that the command names.
missing: [MissingRuns] - The runs that have not begun, for each experiment file that lacks any.
""",
    "MissingRuns": """
file: text - The experiment file.
folder: text - The folder of its runs.
runs: integer - Number of all its runs.
rows: {[integer]} - By the label of a row, its seeds that have not begun.
command: text - The command that plays them.
""",
    "Measures": """
path: text - Directory of the run.
label: text - Label of the row.
seed: integer - Seed of the run.
finished: flag - Whether the run is finished.
planned_rounds: integer - Number of rounds that it has if it is finished.
rounds: integer - Number of rounds played.
accuracy: number? - Test accuracy after the last round; fractions, or R² for numeric labels.
macro_accuracy: number? - Its mean over classes.
class_accuracy: [number?] - Test accuracy of each class.
best_accuracy: number? - The highest test accuracy of all rounds.
early_stop_accuracy: number? - Test accuracy in the best round by validation before early stopping (`measures.patience`).
early_stop_round: number? - That round.
local_accuracy: number? - Training accuracy of the clients of the last round in which any trained, each with its own model.
client_accuracy: number? - Mean accuracy on the clients' own data; null if it was not measured.
worst_client_accuracy: number? - Mean of the tenth of the clients with the lowest accuracy.
client_accuracy_sd: number? - Standard deviation over clients.
personal_accuracy: number? - Mean accuracy of personal models.
worst_personal_accuracy: number? - Mean of the worst tenth.
personal_gain: number? - Gain over the global model.
target_accuracy: number? - The target test accuracy; null without one.
target_chosen: text - Where it comes from: `argument`, `measures.target_accuracy` or `results`; or why there is none.
rounds_to_target: number? - Rounds until the target; null without one, or if it was not reached.
time_to_target: number? - Time until the target.
bytes_to_target: number? - Bytes until the target.
simulated_time: number? - Simulated time of all rounds; seconds on real machines.
bytes: number? - Bytes sent and received.
client_passes: number? - Forward passes over a client's training data, summed over clients; an epoch of training counts as three.
wall_seconds: {number?} - Wall time of the simulator in seconds, by part of a round and in total.
selected: Evenness - How evenly clients were selected.
selected_random: Evenness - The expected values under uniform selection of as many available clients.
jain_random: Quantiles - Jain's index under uniform selection of as many available clients.
admitted: Evenness - How evenly clients were admitted; without an admitted update, all but its coverage is null.
tail_sd: number? - Standard deviation of the test accuracy over the last fifth of the rounds.
largest_drop: number? - Largest drop of the test accuracy from one round to the next.
forgetting: number? - Mean over classes of the difference between their best accuracy and their last.
clock: text - `simulated`, or `wall` for runs on real machines.
own_measures: {number?} - Own measures in the last evaluated round, by name.
labels: text - `classes` or `numbers`.
conformal: PredictionSets - Prediction sets; only with `--conformal`.
""",
    "Evenness": """
jain: number? - Jain's index; 1 is even.
gini: number? - Gini coefficient; 0 is even.
entropy: number? - Entropy in nats.
coverage: number? - Share of clients that were taken at least once.
""",
    "Quantiles": """
mean: number? - Mean.
q05: number? - 5% quantile.
q50: number? - Median.
q95: number? - 95% quantile.
""",
    "PredictionSets": """
alpha: number - Target error rate.
threshold: number? - Largest score of a class in a set.
sets: Sets - Measures of the sets.
expected: [number?] - Range that contains the coverage on average.
likely: [number?] - 5% and 95% quantile of the coverage of one calibration, on a very large test set.
num_calibration: integer - Number of samples of the calibration.
labels: text - `classes`, or `numbers`, whose sets are intervals.
""",
    "Sets": """
coverage: number? - Share of test samples whose set contains their class.
size: number? - Mean number of classes of a set, or mean length of an interval.
empty: number? - Share of empty sets.
""",
    "why": """
label: text - Label of the row.
strategy: text - The strategy with its parameters.
round: integer - The round.
rounds: integer - Number of rounds of the run.
note: text - The strategy's reason; empty without one.
available: integer - Number of available clients.
selected: integer - Number of selected clients.
trained: integer - Number of clients from which the server received a finite update.
admitted: integer - Number of clients whose updates entered the model.
round_time: number? - Time of the round.
candidates: [Candidate] - The selected clients first, then the best scores.
asked: [Exchange] - Questions to clients, and the training.
client: integer? - The client that the command asks about.
client_name: text - Its name in the data; empty if the data do not name it.
earlier: [integer] - Earlier rounds in which this client was selected.
availability_known: flag - Whether it is known that this client was available.
clock: text - `simulated` or `wall`.
labels: text - `classes` or `numbers`.
tie: Tie? - Clients with the same score, of which only some were selected; null without any. Ties are random.
words: [text] - The decision in sentences.
""",
    "Tie": """
score: number? - Their score.
selected: [integer] - Those that were selected.
not_selected: [integer] - Those that were not.
""",
    "Candidate": """
client: integer - Number of the client.
selected: flag - Whether it was selected.
score: number? - Its score.
rank: number? - Rank by score, 1 for the highest.
terms: {number?} - Terms of the score, by name.
status: text - What happened to it; empty if it was not selected.
detail: text - The reason, if there is one.
outcome: {number?} - Numbers that it reported, by name.
name: text - Its name in the data; empty if the data do not name it.
""",
    "Exchange": """
kind: text - The question, or `training`.
messages: integer - Number of messages.
bytes_down: integer - Bytes to clients.
bytes_up: integer - Bytes to the server.
passes: number - Forward passes over a client's training data; an epoch of training counts as three.
discloses: text - What a client discloses; empty without a message.
""",
    "diagnose": """
runs: [Diagnosis] - The runs, in the order in which they were given.
missing: [MissingRuns] - The runs that have not begun, for each experiment file that lacks any.
""",
    "Diagnosis": """
path: text - Directory of the run.
label: text - Label of the row.
seed: integer - Seed of the run.
finished: flag - Whether the run is finished.
planned_rounds: integer - Number of rounds that it has if it is finished.
rounds: integer - Number of rounds.
scored_rounds: integer - Number of rounds that the shares of the highest predictions cover; 0 if the scores of every round are equal.
cut_rounds: integer - Number of rounds left out, because at least 1,000 clients were selected and the record keeps no more candidates.
greedy: number? - Share of the selected clients with a score that have the highest predictions.
chance: number? - The same share under uniform selection.
exploration: number? - Share of the selected clients with a score beyond the highest predictions.
new: number? - Share of the selections of clients that were selected for the first time.
correlations: [Correlation] - How well scores predict outcomes.
labels: text - `classes` or `numbers`.
prediction: text - What `greedy` goes by: a term of the score without exploration, `score − exploration`, `score − bonus`, or `score`.
unscored: number? - Share of the selections of clients without a score, which the other shares and correlations leave out.
""",
    "Correlation": """
outcome: text - What the score is compared with.
rank_correlation: number? - Spearman's rank correlation, mean over rounds.
rounds: integer - Number of rounds.
clients: number? - Mean number of clients in these rounds; null for `gain`.
""",
    "race": """
name: text - Name of the experiment.
objectives: [Objective] - What rows are judged by.
recommended: any - Label of the leading row, however sure it is (see `decided`); a list of labels for two objectives.
recommendation: text - The recommendation in words.
at_most_better: number? - How much better another row can be, at most, as a difference of `scores`.
ended: text - Why the race ended.
decided: flag - Whether the result is clear.
confidence: number - Confidence of the intervals.
cost: RaceCost - Cost of the race.
grid_cost: RaceCost - Estimated cost of all rows under all seeds.
skipped: {text} - Strategies that could not take part, with reasons.
rows: [RaceRow] - The rows, the best one first.
""",
    "Objective": """
measure: text - The measure.
limit: text - The cost at which an accuracy is read, or `accuracy` for the cost of a target; empty without one.
value: number? - Value of the limit.
margin: number? - The difference that does not matter; for a cost, relative: 0.05 is 5%.
labels: text - What the labels are: classes, or numbers.
text: text - The objective as users write it.
""",
    "RaceCost": """
runs: number? - Number of runs.
bytes: number? - Bytes sent and received.
client_passes: number? - Forward passes over a client's training data; an epoch of training counts as three.
simulated_time: number? - Simulated time.
wall_seconds: number? - Wall time of the simulator in seconds.
""",
}

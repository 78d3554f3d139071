"""The formats of ``--json`` about rows of races, profiles, plug-ins, data and the installation."""

__all__ = ["RECORDS_OF_DATA"]

RECORDS_OF_DATA = {
    "RaceRow": """
label: text - Label of the row.
state: text - Whether it is still in the race.
seeds: integer - Number of seeds that it ran.
difference: number? - Mean difference of `scores` to the first row; for a cost, log 2 is half the cost.
low: number? - Lower end of its interval, also a difference of `scores`.
high: number? - Upper end of its interval, also a difference of `scores`.
dropped_by: any - The row that it was clearly worse than, if it was dropped.
dropped_after: any - Number of seeds after which it was dropped.
reached: integer? - Number of seeds that reached the target; null without a target.
unspent: integer - Number of runs that ended although the limit had room for another round.
total_runs: number? - Number of runs.
total_bytes: number? - Bytes sent and received.
total_client_passes: number? - Forward passes over a client's training data; an epoch of training counts as three.
total_simulated_time: number? - Simulated time.
total_wall_seconds: number? - Wall time of the simulator in seconds.
runs: {text} - Directories of the runs, by seed.
scores: any - Score of each seed, by objective: accuracy, or −log(cost); −log(1 + number) for `disclosure`.
*: number? - Means of the objectives, and standard deviations of accuracies, by name.
""",
    "advise": """
name: text - Name of the table.
recommended: any - Label of the recommended row; a list for two objectives; null without a race.
recommendation: text - The recommendation in words; empty without a race.
twin: Twin - The federation on public data that raced.
likeness: [Trait] - How like the twin is, trait by trait.
about_likeness: text - How like the twin is, in words.
costs: [RoundCost] - What a round costs.
unknown: [text] - What a race on a twin cannot know.
race: any - The document of `fedcohort race --json`, without `format` and `version`; null without a race.
""",
    "Twin": """
data: text - Name of the data set.
clients: integer - Number of clients.
scale: number - Samples of the twin, divided by those of the table.
because: text - Why the scale is below 1; empty otherwise.
stands_for: {text} - Class of the data by class of the table.
notes: [text] - What was scaled or assumed.
experiment: any - The twin, in the shape of an experiment file.
""",
    "Trait": """
name: text - What is compared.
yours: any - Smallest, median and largest value of the table; null if it is not given.
twin: [number] - The same of the twin.
difference: number? - Mean difference of a client to its twin.
largest: number? - The largest difference.
meaning: text - What a difference is.
state: text - `matched`, `roughly`, `differs` or `not given`.
""",
    "RoundCost": """
label: text - Label of the row.
selected: number - Number of selected clients, mean over rounds and seeds.
models: number - Bytes sent and received, in units of the model's size.
bytes: number - Bytes sent and received.
client_passes: number - Forward passes over a client's training data; an epoch of training counts as three.
simulated_time: number - Simulated time, in seconds if the table has times.
disclosed: number - Numbers that clients send besides their updates.
""",
    "profile": """
name: text - Name of the experiment.
rounds: integer - Number of rounds that were played for the accuracy.
sizes: [BatchSize] - Measurements by batch size, ascending.
recommendations: [Recommendation] - Recommended sizes; none if no client has as many samples as any size.
labels: text - `classes` or `numbers`.
""",
    "BatchSize": """
batch_size: integer - Mini-batch size.
batch_seconds: number? - Mean time of a mini-batch in seconds.
batch_seconds_sd: number? - Its standard deviation.
samples_per_second: number? - Mean over passes.
precision: number? - Half the width of the 95% interval of the mean time, as a share of it.
tight: flag - Whether the precision that was asked for is reached.
passes: integer - Number of passes over the clients' data.
memory: number? - Peak memory in bytes over all clients.
memory_sd: number? - Standard deviation of the clients' peaks.
memory_before: number? - Memory before training.
where: text - `resident` or `device`.
accuracy: number? - Test accuracy after the rounds.
client_accuracy: number? - Mean accuracy on the clients' own data.
clients: [ProfiledClient] - Each timed client.
batch_accuracy: [number?] - Training accuracy of the mini-batches of the rounds, mean over clients.
largest_client: integer - Largest number of training samples of a client.
""",
    "ProfiledClient": """
client: integer - Number of the client.
samples: number? - Its samples.
batch_seconds: number? - Mean time of a mini-batch.
batch_seconds_sd: number? - Its standard deviation.
samples_per_second: number? - Samples per second.
memory: number? - Peak memory in bytes.
accuracy: number? - Accuracy on its data.
""",
    "Recommendation": """
rule: text - `throughput` or `tradeoff`.
batch_size: integer - The recommended size.
reason: text - The reason in words.
""",
    "strategies": """
sections: {[PlugIn]} - Plug-ins by kind, such as `strategy`, `algorithm` or `latency_law`; those of a file are `your_own`.
""",
    "PlugIn": """
name: text - Name in experiment files.
summary: text - What it does; for a broken plug-in, the error.
source: text - Its source.
status: text - `paper`, `code` or `ours`.
asks: text - What it asks clients.
discloses: text - What clients disclose.
knows: text - What the server must know or hold in order to select.
cost: text - Work of the server in a round.
score: text - What it assumes about the score of a model: the accuracy, or R² for numeric labels.
also_known_as: [text] - What it is called in the literature.
needs: [text] - What it needs of the experiment.
parameters: [Parameter] - Its parameters.
*: any - Further facts of the plug-in's card.
""",
    "Parameter": """
name: text - Name of the parameter.
type: text - Its type in words.
default: any - Its default.
doc: text - Its meaning.
""",
    "data-describe": """
data: text - Name of the data set.
classes: [text] - Names of the classes.
train_samples: integer - Number of training samples.
test_samples: integer - Number of test samples.
partition: {any} - The section `federation.partition` of the experiment.
label_noise: {any} - The section `federation.label_noise`.
feature_shift: {any} - The section `federation.feature_shift`.
systems: {any} - The section `systems`.
dropped: integer - Training samples that belong to no client.
effective_alpha: any - Estimated Dirichlet concentration: a number, `inf`, or null if it is undefined.
seed: integer - Seed of the federation.
clients: [ClientFacts] - The clients.
quantiles: {{number?}} - Quantiles over all clients by measure, such as `samples` or `largest_class_share`, and level.
""",
    "ClientFacts": """
client: integer - Number of the client.
name: text? - Its name, if the data have names of clients.
samples: integer - Its samples.
counts: [integer] - Samples of each class.
classes_held: integer - Number of classes that it has.
largest_class: integer? - Number of its largest class.
largest_class_share: number? - Share of this class.
distance: number? - Distance of its class shares to those of all samples.
held_out: integer - Samples that are held out.
wrong_labels: number? - Share of labels that the simulated label noise made wrong; null without it, as nothing is known then.
time: number? - Simulated time of a round.
sending: number? - The part of it for sending.
shift: any - Its feature shift.
presence: number? - Share of rounds in which it is available.
""",
    "data-list": """
data: [KnownData] - The data sets.
""",
    "KnownData": """
name: text - Name in experiment files.
from: text - Where it comes from.
here: text - Whether it can be read without a network.
""",
    "data-cache": """
entries: [CacheEntry] - What the cache holds after the command.
removed: [text] - Names of removed entries.
""",
    "CacheEntry": """
name: text - Name of the entry.
data: text - The data set.
bytes: integer - Its size.
days: number - Its age in days.
damage: text? - What is damaged, null if nothing is; only with `--verify`.
""",
    "doctor": """
fedcohort: text? - Version of FedCohort.
python: text - Version of Python.
torch: text? - Version and build of PyTorch.
system: text - Operating system.
cores: integer - Number of cores that may be used.
packages: {Package} - Required packages by name.
devices: [text] - Devices that PyTorch can use.
cache: CacheFolder? - The cache; null if it cannot be used.
mirror: Mirror? - The data mirror; null without one.
extras: {Extra} - Optional packages by extra.
notes: [text] - Notes.
problems: [Problem] - What keeps FedCohort from working.
""",
    "Package": """
version: text? - Installed version; null if it is not installed.
oldest: text? - The oldest version that works.
""",
    "CacheFolder": """
folder: text - Its path.
entries: integer - Number of entries.
num_bytes: integer - Its size.
free: integer - Free space in bytes.
""",
    "Mirror": """
folder: text - Its path.
data: [text] - The data sets that it has.
""",
    "Extra": """
packages: {text?} - Installed versions.
use: text - What it is for.
command: text? - The command that installs it; null if it is installed.
""",
    "Problem": """
text: text - What it is.
cure: text - What to do about it.
""",
}

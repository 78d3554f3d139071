"""One copy of the model with everything that the local training of one client after another needs."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fedcohort.algorithms import Algorithm, ModelState, Tensors
from fedcohort.algorithms.base import adds_correction, takes_plain_steps
from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.threads import intra_op_threads
from fedcohort.federation.federation import Federation, Samples
from fedcohort.training.client_hooks import settings_under
from fedcohort.training.image_augmentation import check_images
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.networks.memory_layouts import channels_last, in_fast_layout
from fedcohort.training.networks.mixed_samples import largest_pass, loss_draws, passes
from fedcohort.training.networks.model_states import DTYPES, copied
from fedcohort.training.networks.network_buffers import NetworkBuffers
from fedcohort.training.networks.omitted_entries import FrozenParameters
from fedcohort.training.networks.random_layers import draws_at_random
from fedcohort.training.networks.received_outputs import CHUNK, received_outputs
from fedcohort.training.optimizers import build_optimizer
from fedcohort.training.programs.network_rewriting import GivenOrder, relu_last
from fedcohort.training.programs.plain_network import Program, program_of
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.scripts.recorded_passes import RecordedPass, common_batch_sizes, record_pass
from fedcohort.training.scripts.scripted_corrections import OwnCorrections
from fedcohort.training.scripts.scripted_passes import ScriptedPass
from fedcohort.training.scripts.scripted_series import ScriptedSeries

__all__ = ["LocalSetup"]

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class LocalSetup:
    """The model of one thread, with its optimizer, its loss and the data.

    Args:
        federation: holds the clients' data.
        module: a model that nothing else uses; it is changed in place.
        training: the experiment's settings.
        algorithm: its client half adapts the settings.
        seed: the experiment's seed.
        draws: whether the model or the loss draws random numbers in training, see
            :mod:`fedcohort.training.networks.random_layers`; None means that a trial run decides.
        omitted: names of the entries of the module's state dictionary that models do not have, see
            :func:`~fedcohort.training.networks.omitted_entries.omitted_entries`.
        threads_per_client: number of intra-op threads with which a client is trained, on which the bits depend.

    Attributes:
        training: the settings after the algorithm has adapted them.
        smallest_batch: smaller batches are left out. It is 2 for models with batch norm, which has no statistics of a single sample
            and would raise an error.
        given_order: the order in which the network's layers were given; :attr:`module` has some of them in another one.
        entries: the entries of the module's state dictionary that models have.
        frozen: the parameters that models omit.
        num_values: number of values in the module's state dictionary, with those that models omit.
        parameters: the trainable entries.
        program: the steps of the network as one program; None if there is no program for this network and this loss.
        recordings: passes of the network on a GPU of CUDA, by batch size, for the sizes of
            :func:`~fedcohort.training.scripts.recorded_passes.common_batch_sizes`; empty if passes cannot be recorded.
        scripts: passes of the network on a CPU as scripts; None on other devices.
        own_corrections: scripts of what an algorithm of a user does with gradients.
        stream: the stream of a GPU that has the work of this thread, see :mod:`fedcohort.engines.device`; None means the usual one.
        shares_work: whether programs or scripts give work to idle threads.
    """

    def __init__(
        self,
        federation: Federation,
        module: nn.Module,
        training: Training,
        algorithm: Algorithm,
        seed: int,
        draws: bool | None = None,
        omitted: Collection[str] = (),
        threads_per_client: int = 1,
    ) -> None:
        self.federation = federation
        self.algorithm = algorithm
        self.threads_per_client = threads_per_client
        self.training = settings_under(algorithm, training)
        check_images(training.augment, federation.sample_shape)
        self.loss = self.training.build_loss()
        self.seed = seed
        self.dtype = DTYPES[training.precision]
        self.given_order = GivenOrder(module)
        self.module = quick_products(relu_last(module)).to(dtype=self.dtype)
        if len(federation.sample_shape) == 3:
            images = federation.prepare(federation.train[:2].features, self.dtype)
            self.module = in_fast_layout(self.module, images)
        self.smallest_batch = 2 if any(isinstance(part, _BATCH_NORMS) for part in self.module.modules()) else 1
        self.draws = self._may_draw() if draws is None else draws
        self._parts = list(self.module.modules())
        self._largest_pass = largest_pass(federation, self.module, self.loss, training.batch_size)
        state = self.module.state_dict()
        self.entries: ModelState = {name: value for name, value in state.items() if name not in omitted}
        self.frozen = FrozenParameters(self.module, omitted)
        self.num_values = sum(value.numel() for value in state.values())
        self._network_buffers = NetworkBuffers(self.module, omitted)
        self.parameters: Tensors = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        self.optimizer = build_optimizer(self.training, list(self.parameters.values()))
        on_cpu = federation.device.type == "cpu"
        self.scripts = Scripts(self.module, self.parameters, self.loss, self.draws) if on_cpu else None
        self.own_corrections = OwnCorrections(algorithm, self.scripts is not None and self.scripts.possible)
        with self.own_threads():
            self.program, self._outputs_program = self._programs()
        self.recordings: dict[int, RecordedPass] = {}
        if federation.device.type == "cuda" and not self.draws:
            self._record_passes()
        self.shares_work = False
        self.stream: Any = None
        self._shown: ModelState | None = None
        self._series: ScriptedSeries | None = None

    def _programs(self) -> tuple[Program | None, Program | None]:
        """The program that takes steps, and the one that computes outputs."""
        if self.federation.integers or self.federation.vocabulary or self.loss.numeric:
            return None, None
        outputs = program_of(self.module, self.federation.sample_shape)
        takes_part = type(self.loss) is CrossEntropy and not self.own_corrections.possible
        return outputs if takes_part else None, outputs

    def _may_draw(self) -> bool:
        """Whether the model or the loss draws random numbers, found out by a trial."""
        samples = self.federation.prepare(self.federation.train[:2].features, self.dtype)
        return draws_at_random(self.module, samples) or loss_draws(self.loss, self.federation, self.dtype)

    def _record_passes(self) -> None:
        """Record the pass for each size of :func:`common_batch_sizes` that is at most one chunk."""
        train, beside = self.federation.train, None
        for size in common_batch_sizes(self.federation.num_samples, self.training.batch_size):
            if not self.smallest_batch <= size <= CHUNK:
                continue
            images = channels_last(self.federation.prepare(train[:size].features, self.dtype))
            features = images.contiguous().permute(0, 3, 1, 2) if images.dim() == 4 else images
            module, labels = self.module.train(), train.labels[:size]
            recording = record_pass(module, self.parameters, self.loss, features, labels, beside)
            if recording is None:
                return
            recording.fresh = not takes_plain_steps(self.algorithm)
            self.recordings[size] = beside = recording

    def own_threads(self) -> AbstractContextManager[None]:
        """A block with the intra-op threads of a client's training; the threads of an engine have one otherwise."""
        return intra_op_threads(self.threads_per_client) if self.threads_per_client > 1 else nullcontext()

    def passes(self, samples: int) -> list[slice]:
        """The samples of each forward pass of a training; a single pass if they depend on each other, see
        :mod:`fedcohort.training.networks.mixed_samples`."""
        return passes(samples, self._largest_pass, self.smallest_batch)

    def share_work(self, idle: Tensor) -> None:
        """Give work to other threads, if there are any and the network has enough of it, see :meth:`Program.share_work
        <fedcohort.training.programs.plain_network.Program.share_work>`. They have one intra-op thread each, so clients with more share
        nothing."""
        threads = int(idle)
        if threads > 1 and self.threads_per_client == 1:
            by_program = self.program is not None and self.program.share_work(idle, threads)
            scripts = self.scripts if self.program is None or self.own_corrections.possible else None
            self.shares_work = by_program or (scripts is not None and scripts.share_work(idle))

    def show(self, model: ModelState) -> nn.Module:
        """The module with the weights of ``model``, in evaluation mode; copies them only if the module holds another model."""
        if self._shown is not model:
            self.load(model)
            self._shown = model
        return self.module.eval()

    def in_training(self) -> nn.Module:
        """The module in training mode."""
        if not all(part.training for part in self._parts):  # setting it takes long
            self.module.train()
        return self.module

    def outputs_program(self) -> Program | None:
        """The program that computes the outputs of the module; None if there is none."""
        found = self._outputs_program
        return found if found is not None and found.holds() else None

    def received_outputs(self, data: Samples) -> Tensor:
        """Softmax outputs [n, K] of the model that the module holds on these samples, see
        :func:`~fedcohort.training.networks.received_outputs.received_outputs`; the module is in training mode afterwards."""
        module, program = self.module.eval(), self.outputs_program()

        def logits(raw: Tensor) -> Tensor:
            features = self.federation.prepare(raw, self.dtype)
            return module(features) if program is None else program.outputs(features, [0, len(features)])

        outputs = received_outputs(logits, data)
        module.train()
        return outputs

    def forget(self) -> None:
        """Let :meth:`show` copy weights again, after something else has changed those of the module."""
        self._shown = None

    def load(self, model: ModelState) -> None:
        """Copy the weights of ``model`` into the module."""
        self._shown = None
        with torch.no_grad():
            self._network_buffers.reset()
            for name, value in self.entries.items():
                value.copy_(model[name])

    def whole(self, model: ModelState) -> ModelState:
        """A copy of the module's state dictionary with the weights of ``model``, and with the entries that it omits."""
        self.load(model)
        return copied(self.module.state_dict())

    def trained(self) -> ModelState:
        """A copy of the model that the module holds after a training."""
        self._network_buffers.gather()
        self.frozen.check()
        return copied(self.entries)

    def begin(self, model: ModelState, t: int, *, load: bool = True) -> None:
        """Prepare for a training in round ``t`` from ``model``: weights, training mode, fresh optimizer state, learning rate. Without
        ``load``, the module stays as it is, for a training that does not use it."""
        torch.set_autocast_cache_enabled(False)  # all threads share it, and gradients depend on what it has
        if load:
            self.load(model)
            self.in_training()
        self.optimizer.state.clear()
        for group in self.optimizer.param_groups:
            group["lr"] = self.training.lr_at(t)

    @property
    def needs_python(self) -> bool:
        """Whether Python runs every pass of the network, because it has no program and can have no scripts."""
        return self.program is None and (self.scripts is None or not self.scripts.possible)

    @property
    def steps_in_python(self) -> bool:
        """Whether Python runs every step of a training on a CPU: nothing takes several steps in one call, and nothing will."""
        if self.scripts is None:
            return False
        size = self.training.batch_size
        by_script = self._takes_plain_steps(size) or self.own_corrections.possible
        return not by_script or (self.program is None and self.scripts.impossible(size))

    def recorded(
        self, features: Tensor, labels: Tensor, outputs: Tensor | None = None
    ) -> RecordedPass | ScriptedPass | None:
        """The pass for batches of this size without Python; None if there is none. ``outputs`` are those of the received model for
        the batch, for losses that need them."""
        if self.scripts is not None:
            return self.scripts.of(features, labels, outputs)
        return self.recordings.get(len(labels))

    def plain_steps(self, size: int) -> Program | None:
        """The program that takes all steps of an epoch, in batches of ``size``, in one call, if the algorithm has a correction or
        needs none; None if something else takes part in each step."""
        if self.program is None or not self._takes_plain_steps(size):
            return None
        return self.program if self.program.holds() else None

    def scripted_steps(self, size: int) -> ScriptedPass | None:
        """As :meth:`plain_steps`, the script that takes all steps with full batches; None if there is none yet."""
        script = None if self.scripts is None else self.scripts.known(size)
        if script is None or not script.complete or script.takes_long or size > CHUNK:
            return None
        return script if self._takes_plain_steps(size) or self.own_corrections.possible else None

    def scripted_series(self, size: int) -> ScriptedSeries | None:
        """What trains several clients in batches of ``size`` by scripts, if these say what work a client is: for networks of vectors,
        about samples times parameters. Convolutions and sequences have more."""
        vectors = all(parameter.dim() <= 2 for parameter in self.parameters.values()) and not self.federation.vocabulary
        if self.scripts is None or self.program is not None or not vectors or not self._network_buffers.all_are_sent:
            return None
        if size > CHUNK or not (self._takes_plain_steps(size) or self.own_corrections.possible):
            return None
        known = self.scripts.all_known()
        if known and (self._series is None or self._series.sizes != known.keys()):
            buffers = [value for name, value in self.entries.items() if name not in self.parameters]
            self._series = ScriptedSeries(known, buffers)
        return self._series if known else None

    def _takes_plain_steps(self, size: int) -> bool:
        return size <= CHUNK and (takes_plain_steps(self.algorithm) or adds_correction(self.algorithm))

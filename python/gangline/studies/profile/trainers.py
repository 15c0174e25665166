"""Provides training loops: ten PyTorch networks, three numpy loops for a CPU, and user models.

Weights are random, and a batch is generated once and stays on the device, so that neither a
download nor an input pipeline is measured. PyTorch's default precision (32 bits) is used.
"""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import msgspec

from gangline._support.formatting import did_you_mean
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.floating[Any]]  # 32 bits

__all__ = ["MODELS", "NUMPY", "Model", "Shipped", "Trainer", "make"]


class Shipped(NamedTuple):
    """A model that ships with gangline.

    Attributes
    ----------
    batch : int
        Samples in a full batch.
    needs : str
        The library that must be installed.
    """

    batch: int
    needs: str


NUMPY, _TORCH, _VISION = "numpy", "PyTorch", "PyTorch, torchvision"
MODELS = {
    "resnet18": Shipped(64, _VISION),
    "resnet50": Shipped(32, _VISION),
    "vgg16": Shipped(16, _VISION),
    "mobilenet_v2": Shipped(32, _VISION),
    "vit_b_16": Shipped(16, _VISION),
    "bert": Shipped(16, _TORCH),
    "gpt": Shipped(2, _TORCH),
    "lstm": Shipped(64, _TORCH),
    "ncf": Shipped(16384, _TORCH),
    "dcgan": Shipped(64, _TORCH),
    "mlp-small": Shipped(64, NUMPY),
    "mlp-large": Shipped(64, NUMPY),
    "conv": Shipped(32, NUMPY),
}
_WIDTHS = {"mlp-small": (64, 64, 10), "mlp-large": (256, 512, 512, 10)}
_RATE = 1e-4  # the learning rate, so small that the weights and the time of a step hardly change


class Model(msgspec.Struct, frozen=True):
    """A model to be trained.

    Attributes
    ----------
    name : str
        Label of the model in traces and tables.
    source : str
        A name in `MODELS`, or a user's `module:function`.
    batch : int
        Samples in a full batch.

    Examples
    --------
    >>> Model("mine", "train:make", 64).batch
    64
    """

    name: str
    source: str
    batch: int

    @classmethod
    def parse(cls, text: str) -> Model:
        """Read `[NAME=]SOURCE[@BATCH]`.

        Raises
        ------
        OptionError
            If the source is unknown, or if a batch is missing or not a whole number above 0.

        Examples
        --------
        >>> Model.parse("bert")
        Model(name='bert', source='bert', batch=16)
        >>> Model.parse("mine=train:make@128")
        Model(name='mine', source='train:make', batch=128)
        """
        left, _, batch = text.partition("@")
        name, equals, source = left.rpartition("=")
        if source not in MODELS and ":" not in source:
            guess = did_you_mean(source, MODELS)
            message = f"models: unknown model `{source}`{guess}; expected one of "
            message += f"{', '.join(MODELS)}, or module:function@BATCH"
            raise OptionError(message, field="models", value=text)
        samples = batch or (str(MODELS[source].batch) if source in MODELS else "")
        if not samples.isascii() or not samples.isdigit() or int(samples) < 1:
            message = f"models: `{text}`: expected a batch of at least 1 sample after `@`, "
            message += f"got `{batch}`"
            raise OptionError(message, field="models", value=text)
        label = name if equals else source.rpartition(":")[2]
        if not label:
            raise OptionError(f"models: `{text}`: has no name", field="models", value=text)
        return cls(label, source, int(samples))


class Trainer(Protocol):
    """A network that is being trained; a user's function may return one.

    Examples
    --------
    >>> class Mine:
    ...     def step(self): self.weight = self.weight * 0.99
    ...     def wait(self): pass
    ...     def save(self, path): open(path, "w").write(str(self.weight))
    ...     def load(self, path): self.weight = float(open(path).read())
    ...     def memory_bytes(self): return 0
    >>> def make(batch, passes, device):
    ...     return Mine()
    """

    def step(self) -> None:
        """Run all passes of one iteration, and then update the weights."""

    def wait(self) -> None:
        """Wait until the device has completed all steps."""

    def save(self, path: str) -> None:
        """Write a checkpoint."""

    def load(self, path: str) -> None:
        """Read a checkpoint."""

    def memory_bytes(self) -> int:
        """Return the peak device memory in bytes; 0 if unknown."""


def make(source: str, batch: int, passes: int, device: str) -> Trainer:
    """Return a trainer whose iterations have `passes` passes and `batch` samples in total."""
    if ":" in source:
        module, _, name = source.partition(":")
        made = getattr(importlib.import_module(module), name)(batch, passes, device)
        return cast("Trainer", made if hasattr(made, "step") else _Function(made, device))
    if MODELS[source].needs == NUMPY:
        rows = -(-batch // passes)
        return _Conv(rows, passes) if source == "conv" else _Mlp(_WIDTHS[source], rows, passes)
    return _Torch(source, batch, passes, device)


class _Function:
    """A user's step function, which has no checkpoints."""

    def __init__(self, step: Callable[[], object], device: str) -> None:
        self.step, self._device = step, device

    def wait(self) -> None:
        if self._device == "cuda":
            importlib.import_module("torch").cuda.synchronize()

    def memory_bytes(self) -> int:
        return _reserved() if self._device == "cuda" else 0


class _Numpy:
    """A network in numpy: it sums the gradients of the passes and updates its weights."""

    def __init__(self, shapes: list[tuple[int, int]], passes: int) -> None:
        import numpy as np

        draw = np.random.default_rng(0)
        self.weights: list[Floats] = [
            draw.standard_normal(shape, dtype=np.float32) / np.float32(shape[0] ** 0.5)
            for shape in shapes
        ]
        self._passes = passes

    def gradients(self) -> list[Floats]:
        """Return the gradients of one pass."""
        raise NotImplementedError

    def step(self) -> None:
        total = self.gradients()
        for _ in range(self._passes - 1):
            total = [one + more for one, more in zip(total, self.gradients(), strict=True)]
        for weights, gradient in zip(self.weights, total, strict=True):
            weights -= _RATE / self._passes * gradient

    def wait(self) -> None:
        pass

    def save(self, path: str) -> None:
        import numpy as np

        with open(path, "wb") as file:  # noqa: PTH123 - numpy would add a suffix to a path
            np.savez(file, *self.weights)

    def load(self, path: str) -> None:
        import numpy as np

        with np.load(path) as kept:
            self.weights = [kept[name] for name in kept.files]

    def memory_bytes(self) -> int:
        return 0


class _Mlp(_Numpy):
    """A multi-layer perceptron, whose step time is dominated by arithmetic."""

    def __init__(self, widths: tuple[int, ...], rows: int, passes: int) -> None:
        import numpy as np

        super().__init__(list(pairwise(widths)), passes)
        draw = np.random.default_rng(1)
        self._inputs = draw.random((rows, widths[0]), dtype=np.float32)
        self._targets = draw.random((rows, widths[-1]), dtype=np.float32)

    def gradients(self) -> list[Floats]:
        layers = [self._inputs]
        for weights in self.weights:
            layers.append((layers[-1] @ weights).clip(0.0))
        error = (layers[-1] - self._targets) / len(self._inputs)
        found: list[Floats] = []
        for weights, inputs in zip(reversed(self.weights), reversed(layers[:-1]), strict=True):
            found.append(inputs.T @ error)
            error = (error @ weights.T) * (inputs > 0.0)
        return found[::-1]


class _Conv(_Numpy):
    """A convolution of images with 3 x 3 kernels, whose step time is dominated by memory copies."""

    def __init__(self, rows: int, passes: int) -> None:
        import numpy as np

        super().__init__([(9, 8)], passes)
        images = np.random.default_rng(1).random((rows, 34, 34), dtype=np.float32)
        self._windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), (1, 2))

    def gradients(self) -> list[Floats]:
        columns = self._windows.reshape(-1, 9)
        made = (columns @ self.weights[0]).clip(0.0)
        return [columns.T @ ((made - 0.5) * (made > 0.0)) / len(columns)]


def _reserved() -> int:
    torch = importlib.import_module("torch")
    return int(torch.cuda.max_memory_reserved())


class _Torch:
    """A network with its optimiser, and a batch that is already on the device."""

    def __init__(self, model: str, batch: int, passes: int, device: str) -> None:
        import torch

        torch.manual_seed(0)
        if device == "cuda":  # release memory that an earlier training of this process left
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self._torch, self._passes, self._device = torch, passes, device
        self._modules, self._loss = _network(model, -(-batch // passes), device)
        weights = [one for module in self._modules for one in module.parameters()]
        self._optimiser = torch.optim.SGD(weights, lr=1e-3, momentum=0.9)

    def step(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        for _ in range(self._passes):
            (self._loss() / self._passes).backward()
        self._optimiser.step()

    def wait(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def save(self, path: str) -> None:
        state = [one.state_dict() for one in (*self._modules, self._optimiser)]
        self._torch.save(state, path)

    def load(self, path: str) -> None:
        state = self._torch.load(path, map_location=self._device)
        for one, kept in zip((*self._modules, self._optimiser), state, strict=True):
            one.load_state_dict(kept)

    def memory_bytes(self) -> int:
        return _reserved() if self._device == "cuda" else 0


def _network(model: str, batch: int, device: str) -> tuple[list[Any], Callable[[], Any]]:
    """Return the network's modules, and a function that computes the loss of one pass."""
    import torch
    from torch import nn
    from torch.nn import functional

    def words(length: int, known: int) -> Any:
        return torch.randint(known, (batch, length), device=device)

    if model in ("bert", "gpt"):
        is_causal = model == "gpt"
        length, known = (512, 50257) if is_causal else (128, 30522)
        layer = nn.TransformerEncoderLayer(
            768, 12, 3072, activation="gelu", batch_first=True, norm_first=is_causal
        )
        body = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).to(device)
        embedding = nn.Embedding(known, 768).to(device)
        head = nn.Linear(768, known).to(device)
        inputs, targets = words(length, known), words(length, known)
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=device)

        def language() -> Any:
            hidden = body(embedding(inputs), mask=mask if is_causal else None, is_causal=is_causal)
            return functional.cross_entropy(head(hidden).flatten(0, 1), targets.flatten())

        return [embedding, body, head], language
    if model == "lstm":
        embedding = nn.Embedding(33278, 650).to(device)
        body = nn.LSTM(650, 650, 2, batch_first=True).to(device)
        head = nn.Linear(650, 33278).to(device)
        inputs, targets = words(35, 33278), words(35, 33278)

        def recurrent() -> Any:
            hidden, _ = body(embedding(inputs))
            return functional.cross_entropy(head(hidden).flatten(0, 1), targets.flatten())

        return [embedding, body, head], recurrent
    if model == "ncf":
        users, items = (nn.Embedding(known, 64).to(device) for known in (138493, 26744))
        body = nn.Sequential(
            nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        ).to(device)
        who, what = words(1, 138493)[:, 0], words(1, 26744)[:, 0]
        liked = torch.rand(batch, 1, device=device)

        def recommend() -> Any:
            both = torch.cat([users(who), items(what)], 1)
            return functional.binary_cross_entropy_with_logits(body(both), liked)

        return [users, items, body], recommend
    if model == "dcgan":
        up = [(100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1)]
        parts: list[Any] = []
        for wide, narrow, stride, padding in up:
            parts += [nn.ConvTranspose2d(wide, narrow, 4, stride, padding, bias=False)]
            parts += [nn.BatchNorm2d(narrow), nn.ReLU(inplace=True)]
        generator = nn.Sequential(*parts, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).to(device)
        down: list[Any] = []
        for narrow, wide in ((3, 64), (64, 128), (128, 256), (256, 512)):
            down += [nn.Conv2d(narrow, wide, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
        critic = nn.Sequential(*down, nn.Conv2d(512, 1, 4)).to(device)
        real = torch.rand(batch, 3, 64, 64, device=device)
        noise = torch.randn(batch, 100, 1, 1, device=device)

        def adversarial() -> Any:
            made = generator(noise)
            scores = critic(torch.cat([real, made]))
            wanted = torch.cat(
                [torch.ones(batch, device=device), torch.zeros(batch, device=device)]
            )
            return functional.binary_cross_entropy_with_logits(scores.flatten(), wanted)

        return [generator, critic], adversarial
    from torchvision import models

    network = getattr(models, model)(weights=None).to(device)
    images = torch.rand(batch, 3, 224, 224, device=device)
    labels = torch.randint(1000, (batch,), device=device)
    return [network], lambda: functional.cross_entropy(network(images), labels)

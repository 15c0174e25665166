"""Training steps: ten networks in PyTorch for a GPU, three loops in numpy for a CPU without it.

Weights are random and each batch is drawn once and stays on the device, so that neither a download
nor an input pipeline is measured. Precision is PyTorch's default (32 bits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# Samples in a full batch.
BATCHES = {
    "resnet18": 64,
    "resnet50": 32,
    "vgg16": 16,
    "mobilenet_v2": 32,
    "vit_b_16": 16,
    "bert": 16,
    "gpt": 2,
    "lstm": 64,
    "ncf": 16384,
    "dcgan": 64,
}
CPU_BATCHES = {"matmul": 64, "stream": 64, "python": 64}


class Training(Protocol):
    """A network in training."""

    def step(self) -> None:
        """Run the passes of one iteration and update the weights."""

    def wait(self) -> None:
        """Return when the device has done all steps."""

    def save(self, path: str) -> None:
        """Write a checkpoint."""

    def memory_bytes(self) -> int:
        """Return the device memory that was in use at most."""


def make(model: str, batch: int, passes: int, device: str) -> Training:
    """Return a training of `passes` passes per iteration, `batch` samples in all of them."""
    if model in CPU_BATCHES:
        return _Numpy(model, batch, passes)
    return _Torch(model, batch, passes, device)


class _Numpy:
    """Work of one kind: arithmetic, memory or the interpreter."""

    def __init__(self, model: str, batch: int, passes: int) -> None:
        import numpy as np

        self._model, self._passes = model, passes
        self._rows = -(-batch // passes)
        draw = np.random.default_rng(0)
        self._weights = draw.random((256, 256), dtype=np.float32)
        self._batch = draw.random((self._rows, 256), dtype=np.float32)
        self._large = np.zeros(2_000_000 if model == "stream" else 0, dtype=np.float32)

    def step(self) -> None:
        for _ in range(self._passes):
            if self._model == "matmul":
                for _ in range(10):
                    self._batch @ self._weights
            elif self._model == "stream":
                self._large += 1.0
            else:
                sum(range(100 * self._rows))

    def wait(self) -> None:
        pass

    def save(self, path: str) -> None:
        import numpy as np

        np.save(path, self._weights)

    def memory_bytes(self) -> int:
        return int(self._weights.nbytes + self._batch.nbytes + self._large.nbytes)


class _Torch:
    """A network with its optimiser, and a batch on the device."""

    def __init__(self, model: str, batch: int, passes: int, device: str) -> None:
        import torch

        torch.manual_seed(0)
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
        state = [module.state_dict() for module in self._modules]
        self._torch.save([*state, self._optimiser.state_dict()], path)

    def memory_bytes(self) -> int:
        return self._torch.cuda.max_memory_reserved() if self._device == "cuda" else 0


def _network(model: str, batch: int, device: str) -> tuple[list[Any], Callable[[], Any]]:
    """Return modules and what computes the loss of one pass."""
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

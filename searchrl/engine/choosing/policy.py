"""A policy without tokens as the learner holds it: a network, its device, version and reference.

Owns the log-probs of recorded choices, what is trained, and what lies in a policy's folder: the
weights and `policy.json`, which says whose network it is and for which space. It draws nothing
(`chooser` does) and is optimised by the learner. Shapes: B episodes, S choices, A actions, N
choices of a layout.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from searchrl.contracts import ChoiceSpace, Chosen
from searchrl.core.encoding import encode_text
from searchrl.core.trajectory import View
from searchrl.engine.choosing.layout import ChoiceLayout, SeenRow, lay_out, stack_views
from searchrl.engine.choosing.masks import entropies, masked_logps, run_episodes
from searchrl.engine.model.head import TokenLogps
from searchrl.errors import PluginError, RunFolderError

WEIGHTS, DESCRIPTION = "weights.safetensors", "policy.json"


@dataclass(slots=True)
class Choices:
    """A policy that chooses actions by number. `version` counts weight updates.

    `owner` is the plugin that made the network, for errors; `source` where it came from.
    """

    network: nn.Module
    space: ChoiceSpace
    device: torch.device
    name: str
    settings: Mapping[str, Any]
    owner: str
    source: str
    version: int = 0
    _frozen: nn.Module | None = None

    def tell(self, ids: Sequence[int]) -> str:
        """Choices by name, for people."""
        names = self.space.actions
        return " → ".join(names[one] if one < len(names) else str(one) for one in ids)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, in a fixed order."""
        return [p for p in self.network.parameters() if p.requires_grad]

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return next(self.network.parameters()).dtype

    @property
    def num_parameters(self) -> tuple[int, int]:
        """(trainable, total) parameter counts."""
        total = sum(p.numel() for p in self.network.parameters())
        return sum(p.numel() for p in self.parameters), total

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """All parameters by name."""
        return self.network.named_parameters()

    def named_modules(self) -> Iterable[tuple[str, nn.Module]]:
        """All modules by name."""
        named: Iterable[tuple[str, nn.Module]] = self.network.named_modules()
        return named

    def weights_stamp(self) -> tuple[int, ...]:
        """Changes whenever a trainable weight changes: torch counts writes."""
        return (self.version, *(p._version for p in self.parameters))

    def find_packing_fault(self) -> str:
        """Why rollouts are not packed: choices have no prompt to share."""
        return "choices have no prompt"

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch dropout off, and back to what was."""
        was_training = self.network.training
        self.network.eval()
        try:
            yield
        finally:
            self.network.train(was_training)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Evaluation mode: dropout would make the ratio differ from 1 before any update."""
        self.network.eval()
        yield

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Nothing is packed, so nothing attends."""
        yield

    def keep_reference(self) -> None:
        """Freeze a copy of the current weights as the reference."""
        if self._frozen is None:
            self._frozen = copy.deepcopy(self.network).eval().requires_grad_(False)

    def lay_out(
        self, rollouts: Sequence[SeenRow], device: torch.device, *, is_packed: bool = False
    ) -> ChoiceLayout:
        """The layout of recorded episodes; there is nothing to pack."""
        return lay_out(rollouts, self.space.max_choices, device, self.dtype)

    def run(self, seen_BSD: Tensor, *, reference: bool = False) -> Chosen:
        """What the network says of B episodes, as who draws and who learns both ask it.

        Raises:
            PluginError: it does not return what the contract says.
        """
        network = self._frozen if reference and self._frozen is not None else self.network
        try:
            return run_episodes(network, seen_BSD)
        except ValueError as error:
            raise PluginError(f"policy '{self.name}' ({self.owner}): {error}") from error

    def logps(
        self,
        layout: ChoiceLayout,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
        with_best: bool = False,
        reference: bool = False,
        entropy_gradient: bool = False,
    ) -> TokenLogps:
        """Log-probs of the choices of a layout; the arguments are those of `Policy.logps`."""
        logp_MA, legal_MA, value_N = self._rows(layout, temperature, reference)
        logp_N = logp_MA.gather(1, layout.target_N[:, None])[:, 0]
        entropy_N = is_best_N = None
        if with_entropy:
            entropy_N = entropies(logp_MA, legal_MA)
            entropy_N = entropy_N if entropy_gradient else entropy_N.detach()
        if with_best:
            is_best_N = logp_N.detach() >= logp_MA.detach().amax(dim=-1)
        return TokenLogps(logp_N, entropy_N, is_best_N, value_N)

    def values(self, episodes: Sequence[Sequence[View]]) -> list[tuple[float, ...]] | None:
        """What the critic expects at every view of episodes; None if the network has none.

        An episode may have one view more than choices. A network sees no more than `max_choices`
        views, so where that would be too many, the first is left out for the last value.
        """
        most = self.space.max_choices
        with torch.no_grad(), self.evaluating():
            blank_BSD = torch.zeros((1, most, self.space.width))
            if self.run(blank_BSD.to(self.device, self.dtype)).value_BS is None:
                return None
            if not episodes:
                return []
            windows = [one[:most] for one in episodes]
            windows += [one[-most:] for one in episodes if len(one) > most]
            seen_BSD, _ = stack_views(windows, most)
            value_BS = self.run(seen_BSD.to(self.device, self.dtype)).value_BS
        assert value_BS is not None
        rows = value_BS.tolist()
        late = iter(rows[len(episodes) :])
        return [
            (*row[: len(one)], *(next(late)[-1:] if len(one) > most else ()))
            for row, one in zip(rows, episodes, strict=False)
        ]

    def distributions(
        self, layout: ChoiceLayout, *, temperature: float = 1.0, reference: bool = False
    ) -> Tensor:
        """Log-probs [N, A] of all actions where `logps` gives one; -inf for illegal ones."""
        with torch.no_grad():
            return self._rows(layout, temperature, reference)[0]

    def _rows(
        self, layout: ChoiceLayout, temperature: float, reference: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probs [N, A], what was legal [N, A] and values [N] at the choices of a layout."""
        logits_BSA, value_BS = self.run(layout.seen_BSD, reference=reference)
        logp_BSA = masked_logps(logits_BSA, layout.legal_BSA, temperature)
        rows = layout.row_N
        value_N = None if value_BS is None else value_BS.flatten()[rows]
        return logp_BSA.flatten(0, 1)[rows], layout.legal_BSA.flatten(0, 1)[rows], value_N

    def save(self, folder: Path) -> None:
        """Write the weights, and what is needed to make the network again."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: p.detach().cpu().contiguous() for name, p in self._state().items()}
        save_file(weights, folder / WEIGHTS)
        described = {
            "name": self.name,
            "settings": dict(self.settings),
            "owner": self.owner,
            "space": self.space.to_dict(),
        }
        text = json.dumps(described, indent=2, ensure_ascii=False)
        (folder / DESCRIPTION).write_bytes(encode_text(text + "\n"))

    def load(self, folder: Path, saved: Mapping[str, Tensor]) -> None:
        """Take over the weights that were saved in a folder.

        Raises:
            RunFolderError: they are those of another network.
        """
        own = self._state()
        missing, foreign = sorted(own.keys() - saved.keys()), sorted(saved.keys() - own.keys())
        if missing or foreign:
            said = f"lacks '{missing[0]}'" if missing else f"has '{foreign[0]}', which it lacks"
            raise RunFolderError(
                f"checkpoint '{folder}' {said}: it was saved from another network than policy "
                f"'{self.name}' with these settings"
            )
        for name, tensor in own.items():
            if tensor.shape != saved[name].shape:
                raise RunFolderError(
                    f"checkpoint '{folder}' has '{name}' of shape {tuple(saved[name].shape)}, and "
                    f"policy '{self.name}' with these settings {tuple(tensor.shape)}: it was saved "
                    "with other settings; they are in its policy.json"
                )
        self.network.load_state_dict(dict(saved))

    def _state(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

"""How a network, its start and its training were chosen: cross-validation on training questions.

    python benchmarks/cross_validate.py --data ir --data multihop --collection scifact \
        --collection hotpotqa_distractor_pool --collection musique_pool \
        --beside 2wikimultihopqa_pool --tables tables.npz

Test questions are not touched. In every fold, the best fixed sequence is chosen on the other folds;
the network begins as that sequence and is trained on the other folds and on the collections beside.
Its most probable actions are then compared with the sequence on the fold's own questions, and with
the sequence that is best for each collection. Prints one JSON object.

Two methods train the same networks on the same tables of positions (`position_tables.py`):
`sampled` is Dr. GRPO with a k3 KL to the start, on episodes that are drawn as a run draws them;
`exact` follows the gradient of the mean over all episodes, and nothing is drawn.

Shapes: Q questions, P positions, O options, N episodes of a step, C choices of these episodes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from position_tables import (
    ACTIONS,
    DEPTHS,
    OPTIONS,
    SPACE,
    Pool,
    Table,
    build_table,
    in_words,
    join,
    load_tables,
    value_policy,
    value_sequences,
    write_tables,
)
from searchrl_control.collections.judged import SPLITS, TRAIN
from searchrl_control.comparison.paired import ByCollection, compare_each, compare_pooled
from searchrl_control.environment.actions import HEADS, Action
from searchrl_control.environment.env import STEP_COST
from searchrl_control.environment.worlds import Place, World
from searchrl_control.policies import networks
from torch import Tensor, nn

from searchrl.core.kl import k3

EXACT, SAMPLED = "exact", "sampled"

_IMPOSSIBLE = -1e9
"""The logit of an illegal option; finite, so that 0 times it is 0."""

_MAX_GRAD_NORM = 0.5
"""As in `training.loop`."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is varied.

    Args:
        method: `sampled` or `exact`.
        steps: of the optimiser.
        lr: learning rate of Adam.
        beta: weight of the KL to the start.
        strength: of the start, in logits.
        hidden: numbers of the hidden layers; 0: the linear network.
        prompts, group_size: questions of a step and episodes of each, if sampled.
        seed: of the first weights and of what is drawn.
    """

    method: str = SAMPLED
    steps: int = 200
    lr: float = 0.01
    beta: float = 0.001
    strength: float = 3.0
    hidden: int = 0
    prompts: int = 50
    group_size: int = 20
    seed: int = 0


def make_network(sequence: Sequence[int], training: Training) -> nn.Module:
    """The network of the package that begins as a fixed sequence."""
    torch.manual_seed(training.seed)
    # The single pass is no action more; without a name, a network begins as no sequence.
    names = tuple(str(ACTIONS[number]) for number in sequence) or (str(Action.TERMINATE),)
    if training.hidden:
        return networks.make_mlp(
            SPACE, hidden=training.hidden, start=names, strength=training.strength
        )
    return networks.make_linear(SPACE, start=names, strength=training.strength)


def choose(network: nn.Module, pool: Pool, positions: Tensor | slice) -> Tensor:
    """The log-probabilities [.., O] of the options at some positions."""
    logits_BA = network(pool.seen_PD[positions][:, None]).logits_BSA[:, 0]
    logits_BO = logits_BA[:, list(OPTIONS)]
    masked_BO = torch.where(pool.is_legal_PO[positions], logits_BO, _IMPOSSIBLE)
    return torch.log_softmax(masked_BO, dim=1)


def train(
    pool: Pool, questions: NDArray[np.int64], sequence: Sequence[int], training: Training
) -> nn.Module:
    """A network that begins as a sequence and was trained on some questions of a pool."""
    network = make_network(sequence, training)
    optimiser = torch.optim.Adam(network.parameters(), lr=training.lr)
    with torch.no_grad():
        start_PO = choose(network, pool, slice(None))
    wanted = torch.from_numpy(questions)
    rng = np.random.default_rng(training.seed)
    order: list[int] = []
    for _ in range(training.steps):
        if training.method == EXACT:
            loss = lose_exactly(network, pool, wanted, start_PO, training.beta)
        else:
            # Every question once, in a drawn order, before one comes again.
            while len(order) < training.prompts:
                order += rng.permutation(questions).tolist()
            drawn, order = order[: training.prompts], order[training.prompts :]
            loss = lose_sampled(network, pool, torch.tensor(drawn), start_PO, training)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), _MAX_GRAD_NORM)
        optimiser.step()
    return network


def lose_exactly(
    network: nn.Module, pool: Pool, questions: Tensor, start_PO: Tensor, beta: float
) -> Tensor:
    """Minus the mean over all episodes of the reward less beta times the KL to the start.

    The KL is that of every choice of an episode, in sum.
    """
    logp_PO = choose(network, pool, slice(None))
    share_PO = logp_PO.exp()
    kl_P = (share_PO * (logp_PO - start_PO)).sum(dim=1)
    return -value_policy(pool, share_PO, STEP_COST, beta * kl_P)[questions].mean()


def lose_sampled(
    network: nn.Module, pool: Pool, questions: Tensor, start_PO: Tensor, training: Training
) -> Tensor:
    """The loss of Dr. GRPO on drawn episodes, each choice weighing the same, per episode.

    One update per draw: the ratio to the policy that drew is 1, and nothing is clipped.
    """
    size = training.group_size
    asked_N = questions.repeat_interleave(size)
    at_N, reward_N = pool.root_Q[asked_N], pool.single_Q[asked_N].clone()
    going = torch.arange(len(asked_N))
    logps, penalties, episodes = [], [], []
    for depth in range(DEPTHS):
        logp_BO = choose(network, pool, at_N[going])
        chosen_B1 = torch.multinomial(logp_BO.detach().exp(), 1)
        logp_B = logp_BO.gather(1, chosen_B1)[:, 0]
        logps.append(logp_B)
        penalties.append(k3(logp_B, start_PO[at_N[going]].gather(1, chosen_B1)[:, 0]))
        episodes.append(going)
        is_going = chosen_B1[:, 0] < len(OPTIONS) - 1
        going, source = going[is_going], chosen_B1[is_going, 0]
        before = at_N[going]
        # The list is what the last action left; what earlier ones cost stays.
        reward_N[going] = pool.worth_PK[before, source] - STEP_COST * (depth + 1)
        at_N = at_N.index_put((going,), pool.child_PK[before, source])
    reward_GN = reward_N.reshape(-1, size)
    advantage_N = (reward_GN - reward_GN.mean(dim=1, keepdim=True)).flatten()
    advantage_C = advantage_N[torch.cat(episodes)]
    losses_C = -(advantage_C * torch.cat(logps)) + training.beta * torch.cat(penalties)
    return losses_C.sum() / len(asked_N)


def play_greedily(network: nn.Module, pool: Pool) -> NDArray[np.float32]:
    """nDCG@k of every question [Q] if the most probable option is taken each time."""
    with torch.no_grad():
        best_P = choose(network, pool, slice(None)).argmax(dim=1)
        share_PO = nn.functional.one_hot(best_P, len(OPTIONS)).float()
        found: NDArray[np.float32] = value_policy(pool, share_PO, 0.0, None).numpy()
    return found


def draw_folds(count: int, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of every question: as even as can be, in a drawn order."""
    drawn = np.arange(count) % folds
    np.random.default_rng(seed).shuffle(drawn)
    return drawn


@dataclass(frozen=True, slots=True)
class Validated:
    """What one draw of folds gave for the questions that are validated on [Q]."""

    agent_Q: NDArray[np.float32]
    pooled_Q: NDArray[np.float32]
    own_Q: NDArray[np.float32]
    sequences: list[str]


def validate(
    pool: Pool, measured: int, folds: int, fold_seed: int, training: Training
) -> Validated:
    """Train and compare in every fold.

    Args:
        pool: the questions that are validated on, then those that are only trained on.
        measured: how many are validated on.
        folds: how many.
        fold_seed: of their draw.
        training: of the network.
    """
    sequences, worth_QS = value_sequences(pool)
    fold_Q = draw_folds(measured, folds, fold_seed)
    collection_Q = pool.collection_Q[:measured]
    agent_Q, pooled_Q, own_Q = (np.zeros(measured, dtype=np.float32) for _ in range(3))
    beside, names = np.arange(measured, len(pool.ids_Q)), []
    for fold in range(folds):
        rest, held = np.flatnonzero(fold_Q != fold), np.flatnonzero(fold_Q == fold)
        best = int(worth_QS[rest].mean(axis=0).argmax())
        names.append(in_words(sequences[best]))
        pooled_Q[held] = worth_QS[held, best]
        for name in np.unique(collection_Q):
            of_rest = rest[collection_Q[rest] == name]
            of_held = held[collection_Q[held] == name]
            own_Q[of_held] = worth_QS[of_held, int(worth_QS[of_rest].mean(axis=0).argmax())]
        network = train(pool, np.concatenate([rest, beside]), sequences[best], training)
        agent_Q[held] = play_greedily(network, pool)[held]
    return Validated(agent_Q, pooled_Q, own_Q, names)


def by_collection(pool: Pool, value_Q: NDArray[np.float32]) -> ByCollection:
    """Values as the package compares them."""
    found: dict[str, dict[str, float]] = {}
    for place, value in enumerate(value_Q.tolist()):
        found.setdefault(str(pool.collection_Q[place]), {})[str(pool.ids_Q[place])] = value
    return found


def tell(pool: Pool, draws: Mapping[int, Validated]) -> dict[str, Any]:
    """The comparisons of all draws of folds; a question counts with its mean over the draws."""
    found = list(draws.values())
    agent, pooled, own = (
        by_collection(pool, np.mean([getattr(one, name) for one in found], axis=0))
        for name in ("agent_Q", "pooled_Q", "own_Q")
    )
    rows = {"network": agent, "best pooled": pooled, "best of each": own}
    return {
        "ndcg": {
            label: {name: float(np.mean([*of.values()])) for name, of in values.items()}
            for label, values in rows.items()
        },
        "against the best pooled": compare_pooled(agent, pooled),
        "each against the best pooled": compare_each(agent, pooled),
        "against the best of each": compare_pooled(agent, own),
        "each against the best of each": compare_each(agent, own),
        "draws": {
            seed: {
                "against the best pooled": float((one.agent_Q - one.pooled_Q).mean()),
                "sequences": one.sequences,
            }
            for seed, one in draws.items()
        },
    }


def open_tables(wanted: Sequence[tuple[str, str]], given: argparse.Namespace) -> dict[str, Table]:
    """The tables of some collections and splits, by `COLLECTION:SPLIT`; new ones are kept."""
    kept = load_tables(given.tables) if given.tables else {}
    found: dict[str, Table] = {}
    for name, split in wanted:
        key = f"{name}:{split}"
        if key not in kept:
            folder = next((one for one in given.data if (Path(one) / name).is_dir()), None)
            world = World(Place(name, data=folder, actions=HEADS, cache=given.cache))
            kept[key] = build_table(world, split)
            if given.tables:
                write_tables(given.tables, kept)
        found[key] = kept[key]
    return found


def read_arguments() -> argparse.Namespace:
    """The command line."""
    usual = Training()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--collection", action="append", required=True)
    parser.add_argument("--beside", action="append", default=[], help="is only trained on")
    parser.add_argument(
        "--beside-split", action="append", choices=SPLITS, help="of those; train if left out"
    )
    parser.add_argument("--data", action="append", default=[])
    parser.add_argument("--cache")
    parser.add_argument("--tables", type=Path, help="a file; tables that it lacks are added")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--fold-seed", type=int, action="append", help="7 and 8 if left out")
    parser.add_argument("--method", default=usual.method, choices=(SAMPLED, EXACT))
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument("--lr", type=float, default=usual.lr)
    parser.add_argument("--beta", type=float, default=usual.beta)
    parser.add_argument("--strength", type=float, default=usual.strength)
    parser.add_argument(
        "--bound", type=float, default=networks.FARTHEST_LOGIT, help="of what is learned, in logits"
    )
    parser.add_argument("--hidden", type=int, default=usual.hidden, help="0: linear")
    parser.add_argument("--seed", type=int, default=usual.seed)
    return parser.parse_args()


def main() -> None:
    """Measure, and print."""
    given = read_arguments()
    torch.set_num_threads(1)
    # The one thing varied that is no setting of a network.
    networks.FARTHEST_LOGIT = given.bound
    training = Training(
        given.method,
        given.steps,
        given.lr,
        given.beta,
        given.strength,
        given.hidden,
        seed=given.seed,
    )
    began = time.process_time()
    measured = open_tables([(name, TRAIN) for name in given.collection], given)
    splits = given.beside_split or [TRAIN]
    beside = open_tables([(name, split) for name in given.beside for split in splits], given)
    opened_s = time.process_time() - began
    pool = join({**measured, **beside})
    count = sum(len(table.ids_Q) for table in measured.values())
    seeds = given.fold_seed or [7, 8]
    draws = {seed: validate(pool, count, given.folds, seed, training) for seed in seeds}
    told = {
        "questions": {key: len(table.ids_Q) for key, table in {**measured, **beside}.items()},
        "training": {name: getattr(training, name) for name in training.__slots__},
        "bound": given.bound,
        **tell(pool, draws),
        "tables_cpu_s": round(opened_s, 1),
        "cpu_s": round(time.process_time() - began, 1),
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()

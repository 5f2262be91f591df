"""The built-in plugin: what SearchRL itself offers, through the same hooks as everyone else.

Every factory is registered as a lazy string, so listing names imports neither torch nor numpy.
This file holds no behaviour: each object is in the module that its string names.
"""

from __future__ import annotations

from searchrl.config.packaged import EMBEDDED
from searchrl.hookspecs import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_envs(register: Register) -> None:
    """The search environments, and a scheme for Gymnasium's own."""
    register(
        "regulations",
        "searchrl.envs.regulations:RegulationsEnv",
        expert="searchrl.envs.regulations:make_expert",
        scripts={
            "passive": "searchrl.envs.regulations:make_passive",
            "two_search_regex": "searchrl.envs.regulations:make_two_search_regex",
        },
        policies={"think-search-answer": EMBEDDED},
        description="questions on generated school handbooks; every school is new",
    )
    register(
        "corpus",
        "searchrl.envs.corpus:CorpusEnv",
        expert="searchrl.envs.scripts:make_expert",
        description="your own questions over your own texts",
    )
    register(
        "multihop",
        "searchrl.envs.corpus:MultihopEnv",
        scripts={
            "no_search": "searchrl.envs.scripts:make_no_search",
            "one_search": "searchrl.envs.scripts:make_one_search",
            "two_search": "searchrl.envs.scripts:make_two_search",
            "oracle_hop": "searchrl.envs.scripts:make_oracle_hop",
        },
        description="questions of several hops: HotpotQA, 2WikiMultihopQA, MuSiQue",
    )
    register(
        "gym:",
        "searchrl.envs.foreign:GymAdapter",
        protocol="act",
        reward="env",
        scripts={"random": "searchrl.envs.foreign:RandomActor"},
        is_safe="searchrl.envs.gym_ids:is_of_gymnasium",
        description="any Gymnasium environment of text or discrete spaces: gym:FrozenLake-v1",
    )


@hookimpl
def register_wrappers(register: Register) -> None:
    """A limit of turns, and a test of reading."""
    register(
        "time_limit",
        "searchrl.envs.wrappers:make_time_limit",
        description="ends an episode after `max_turns` turns",
    )
    register(
        "altered",
        "searchrl.envs.altered:Altered",
        description="shows another value, other passages or none, to see who reads",
    )


@hookimpl
def register_protocols(register: Register) -> None:
    """The tags for searching, for acting in other environments, and for calling tools."""
    for name, target, description in (
        ("think-search-answer", "think_search_answer:ThinkSearchAnswer",
         "<think>, then <search> or <answer>; results come in <information>"),
        ("act", "act:ThinkAct",
         "<think> if you like, then <act>; the environment replies in <observation>"),
        ("tool-call", "tool_call:ToolCallProtocol",
         "<think>, then <tool_call> or <answer>: tools as Qwen3 and Hermes know them"),
    ):  # fmt: skip
        register(name, f"searchrl.protocols.{target}", description=description)


@hookimpl
def register_rewards(register: Register) -> None:
    """The reward components."""
    for name, description in (
        ("format", "the protocol's format verdict"),
        ("em", "exact match with a gold answer"),
        ("cover_em", "a gold answer is part of the answer, in whole tokens"),
        ("f1", "token F1 with the best gold answer"),
        ("fuzzy", "1 exact, 0.5 near, 0 otherwise"),
        ("follows", "1 if the answer is what the wrapper `altered` wrote into the passages"),
        ("searches", "number of searches, for costs"),
        ("searched", "1 if the agent searched at least once"),
        ("support_recall", "share of the gold passages that were shown"),
        ("all_gold", "1 if every gold passage was shown"),
        ("success", "1 if the environment pays the last turn"),
        ("env", "sum of the environment's own rewards"),
    ):
        register(name, f"searchrl.rewards.components:make.{name}", description=description)
    register(
        "judge",
        "searchrl.rewards.judged:make_judged",
        description="what the judge says of the answer: 0, 0.5 or 1",
    )


@hookimpl
def register_judges(register: Register) -> None:
    """A judge that asks nobody."""
    register(
        "lexical",
        "searchrl.rewards.lexical:LexicalJudge",
        description="compares the words of the answer with the accepted ones; offline",
    )


@hookimpl
def register_retrievers(register: Register) -> None:
    """BM25, two ablations that show whether an agent reads what it finds, and a recorder."""
    register(
        "bm25",
        "searchrl.retrieval.bm25:BM25Retriever",
        concurrent=False,  # it computes: many at once would only all be late
        description="rank-bm25 over Unicode words and CJK bigrams",
    )
    for name, target, description in (
        ("random", "RandomRetriever", "ablation: passages without regard to the query"),
        ("empty", "EmptyRetriever", "ablation: never finds anything"),
    ):
        register(name, f"searchrl.retrieval.ablations:{target}", description=description)
    register(
        "recorded",
        "searchrl.retrieval.recorded:RecordedRetriever",
        description="asks another retriever once, and answers from a file ever after",
    )


@hookimpl
def register_backends(register: Register) -> None:
    """A second copy of the policy."""
    register(
        "copy",
        "searchrl.programs.setup.remote:CopyBackend",
        description="a second copy of the policy in this process, on a device of its own",
    )


@hookimpl
def register_trackers(register: Register) -> None:
    """The receivers of metrics."""
    register(
        "jsonl",
        "searchrl.trackers.jsonl:JsonlTracker",
        description="tracker.jsonl in the run folder",
    )
    register(
        "tensorboard",
        "searchrl.trackers.tensorboard:TensorBoardTracker",
        description="TensorBoard event files; needs searchrl[tensorboard]",
    )


@hookimpl
def register_alarms(register: Register) -> None:
    """The alarms that watch a run."""
    for name, target, description in (
        (
            "divergence",
            "update:Divergence",
            "numbers that are not finite, updates that are skipped",
        ),
        ("mismatch", "update:Mismatch", "sampler and trainer disagree about log-probs"),
        ("kl_blow_up", "update:KlBlowUp", "the policy runs away from where it started"),
        ("entropy_collapse", "collapse:EntropyCollapse", "entropy falls to nothing or shoots up"),
        ("format_collapse", "collapse:FormatCollapse", "episodes lose their form"),
        ("search_collapse", "collapse:SearchCollapse", "an agent that searched stops searching"),
        ("length_collapse", "collapse:LengthCollapse", "turns run into their limit, or shrink"),
        ("likelihood_collapse", "collapse:LikelihoodCollapse", "good rollouts become unlikely"),
        ("dead_groups", "reward:DeadGroups", "all groups are dead for many steps"),
        ("constant_reward", "reward:ConstantReward", "every rollout has the same reward"),
        ("one_component", "reward:OneComponent", "a component carries the reward, em stands still"),
        ("truncation", "episode:Truncation", "most episodes are cut by a limit"),
        ("retrieval_failure", "episode:RetrievalFailure", "searches fail or find nothing"),
    ):
        register(name, f"searchrl.alarms.{target}", description=description)


@hookimpl
def register_algorithms(register: Register) -> None:
    """Group-relative policy gradients."""
    for name, description in (
        ("grpo", "group mean and standard deviation, PPO clip"),
        ("grpo_turns", "process rewards: an advantage for every turn"),
        ("dr_grpo", "GRPO without the standard deviation and the length bias"),
        ("rloo", "leave-one-out baseline"),
        ("reinforce_pp", "group mean, standard deviation of the whole step"),
        ("dapo", "clip-higher, dynamic sampling, overlong penalty, no KL"),
        ("gspo", "one ratio per rollout, clipped as a whole"),
        ("cispo", "caps importance weights, drops no token's gradient"),
        ("tis", "corrects a sampler that disagrees with the trainer, with a cap"),
        ("masked_tis", "the same, without the tokens that disagree too much"),
        ("llds", "GRPO that keeps good rollouts likely"),
    ):
        register(name, f"searchrl.algorithms.builtin:make_{name}", description=description)


@hookimpl
def register_generators(register: Register) -> None:
    """The samplers of tokens."""
    register(
        "slots",
        "searchrl.engine.sampling.slot_generator:SlotGenerator",
        description="continuous batching over a slot cache; nothing is computed twice",
    )
    register(
        "hf",
        "searchrl.engine.sampling.hf_generator:HFGenerator",
        description="stock Hugging Face forward passes: the reference, for any model",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """The subcommands of `searchrl`."""
    within = {"train": "training", "sft": "training", "inspect": "runs", "trust": "runs"}
    within |= {"push": "export", "new": "plugins", "bench": "doctor"}
    for name, description in (
        ("train", "Train a search agent with GRPO and show how it learns."),
        ("sft", "Cold start: train on scripted or recorded demonstrations."),
        ("doctor", "Check that what a run would train is what it samples, on a few tokens."),
        ("audit", "Look at questions and corpus before you train: found, guessed, copied?"),
        ("eval", "Evaluate a model, an endpoint or a scripted policy on held-out tasks."),
        ("evidence", "Play tasks again with other passages: do answers rest on what was read?"),
        ("score", "Score the rollouts of a run again and compare two rewards; needs no model."),
        ("ask", "Ask a trained agent a question; shows what it searches and reads."),
        ("play", "Play an environment yourself: you are the policy."),
        (
            "bench",
            "Take a few training steps and say what this machine will do with this configuration.",
        ),
        ("runs", "List run folders: what, when, how far, figures and size on disk."),
        ("study", "Compare arms that differ in their settings: seeds, one budget, one table."),
        ("trust", "Allow for good what a run folder names and may not use without you."),
        ("new", "Write a plugin that works, with its tests, to change into your own."),
        ("check", "Check a plugin, or any registered name, against the criteria of its kind."),
        ("config", "Explain the configuration: every key's type, default and reason."),
        ("plugins", "List what is registered, by whom, and what could not be loaded."),
        ("inspect", "Write a page that shows a run: figures, alarms, rollouts, every token."),
        ("export", "Write the policy of a run as a folder that other programs load."),
        ("push", "Put the policy of a run on the Hugging Face Hub, with a model card."),
    ):
        module = within.get(name, name)
        register(name, f"searchrl.cli.commands.{module}:{name}", description=description)

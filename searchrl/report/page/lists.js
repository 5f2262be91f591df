// The index of all rollouts: reading its columns, names in links, groups, loading one rollout.
"use strict";

SEARCHRL.lists = (() => {
  const { load, groupBy } = SEARCHRL;
  let index = null;
  let numbers = null;
  let members = null;

  function begin(given) {
    index = given;
    numbers = members = null;
  }

  const all = () => Array.from({ length: index.size }, (_, i) => i);

  function key(i) {
    const c = index.columns;
    const side = c.run[i] ? "other:" : "";
    return `${side}${index.phases[c.phase[i]]}.${c.step[i]}/${c.id[i]}`;
  }

  function find(name) {
    numbers ??= new Map(all().map((i) => [key(i), i]));
    return numbers.has(name) ? numbers.get(name) : null;
  }

  function row(i) {
    const c = index.columns;
    const task = index.tasks[c.task[i]];
    const scores = {};
    for (const name of Object.keys(index.scores)) scores[name] = index.scores[name][i];
    return {
      number: i,
      run: c.run[i],
      env: task[0],
      task: task[1],
      kind: task[2],
      question: task[3],
      phase: index.phases[c.phase[i]],
      step: c.step[i],
      reward: c.reward[i],
      advantage: c.advantage[i],
      stop: index.stops[c.stop[i]],
      pattern: index.patterns[c.pattern[i]],
      origin: index.origins[c.origin[i]],
      share: share(i),
      scores,
    };
  }

  function when(row) {
    if (row.phase === "train") return `train, step ${row.step}`;
    return `${row.phase}, ${SEARCHRL.count(row.step, "step")} done`;
  }

  // Its part of the push of all trained tokens of its step.
  function share(i) {
    const c = index.columns;
    const total = index.pulls[`${c.run[i]}/${c.step[i]}`];
    return c.pull[i] === null || !total ? null : c.pull[i] / total;
  }

  function groupOf(i) {
    members ??= groupBy(all(), (at) => index.columns.group[at]);
    return members.get(index.columns.group[i]);
  }

  // The mean reward of rollouts; null if none of them was scored.
  function meanReward(those) {
    const rewards = those.map((i) => index.columns.reward[i]).filter((value) => value !== null);
    return rewards.length ? rewards.reduce((a, b) => a + b, 0) / rewards.length : null;
  }

  // Trained tokens of a step, and the size of its average push.
  function stepPush(i) {
    const c = index.columns;
    const total = index.pulls[`${c.run[i]}/${c.step[i]}`];
    const tokens = all().filter((at) => c.run[at] === c.run[i] && c.step[at] === c.step[i] && c.pull[at] !== null)
      .reduce((sum, at) => sum + c.tokens[at], 0);
    return { total: total || null, mean: total && tokens ? total / tokens : null };
  }

  async function open(i) {
    const file = Math.floor(i / index.per_file) + 1;
    const [rows, words] = await Promise.all([
      load(`rollouts_${String(file).padStart(4, "0")}`),
      load("words"),
    ]);
    return { ...rows[i % index.per_file], words: words[index.columns.run[i]] };
  }

  const link = (i) => `#/rollout/${encodeURI(key(i)).replace(/[?#]/g, encodeURIComponent)}`;
  const groupLink = (i) => link(i).replace("#/rollout/", "#/group/");

  return {
    begin, all, when, key, find, row, share, groupOf, meanReward, stepPush, open, link, groupLink,
    get index() { return index; },
  };
})();

// The recorded components under other weights: the weighted sum, and what it is worth in a group.
// Nothing is scored here. A component that was not recorded needs `searchrl score`.
"use strict";

SEARCHRL.weights = (() => {
  const { el, number, signed, percent, count, lists, given } = SEARCHRL;
  const SHOWN = 50;
  const CLOSE = 1e-6;

  // Those of the reward first, as it has them.
  function names() {
    const all = Object.keys(lists.index.scores);
    const { reward } = given.get("run").runs[0];
    const first = reward ? Object.keys(reward.weights).filter((name) => all.includes(name)) : [];
    return [...new Set([...first, ...all])];
  }

  // The weights of the run, or of the first component where the folder does not tell them.
  function recorded() {
    const { reward } = given.get("run").runs[0];
    return reward || { weights: { [names()[0]]: 1 }, constant: 0, text: null };
  }

  // The reward of every rollout; null if it has no reward or none of the components.
  function weigh({ weights, constant }) {
    const { columns: c, scores, size } = lists.index;
    const used = names().filter((name) => weights[name]);
    return Array.from({ length: size }, (_, i) => {
      const known = used.filter((name) => scores[name][i] !== null);
      if (c.reward[i] === null || (used.length && !known.length)) return null;
      return known.reduce((sum, name) => sum + weights[name] * scores[name][i], constant);
    });
  }

  function expression({ weights, constant }) {
    const terms = names().filter((name) => weights[name]).map((name) => [weights[name], name]);
    if (constant) terms.push([constant, ""]);
    const text = terms.map(([weight, name]) => `${weight < 0 ? "-" : "+"}${name && Math.abs(weight) === 1 ? name : `${Math.abs(weight)}${name && `*${name}`}`}`);
    return text.join("").replace(/^\+/, "") || "0";
  }

  function draw(query) {
    if (!names().length) return el("p", {}, "This run recorded no components.");
    const own = recorded();
    const chosen = { constant: own.constant, weights: {} };
    for (const name of names()) {
      const asked = query.has(`w.${name}`) ? Number(query.get(`w.${name}`)) : NaN;
      chosen.weights[name] = Number.isFinite(asked) ? asked : query.has("phase") ? 0 : own.weights[name] || 0;
    }
    const phases = lists.index.phases;
    const phase = el("select", { change: () => fill() }, phases.map((name) => el("option", {
      value: name, selected: (query.get("phase") || (phases.includes("train") ? "train" : phases[0])) === name,
    }, name)));
    const result = el("div", {});
    const sliders = names().map((name) => slider(name, chosen, () => fill()));
    const fill = () => {
      const address = new URLSearchParams({ phase: phase.value });
      for (const name of names()) if (chosen.weights[name]) address.set(`w.${name}`, String(chosen.weights[name]));
      history.replaceState(null, "", `#/rewards?${address}`);
      result.replaceChildren(...outcome(chosen, phase.value));
      document.body.dataset.ready = location.hash;
    };
    const back = el("button", { type: "button", click: () => {
      for (const one of sliders) one.set(own.weights[one.name] || 0);
      fill();
    } }, "the weights of the run");
    result.replaceChildren(...outcome(chosen, phase.value));
    return el("section", { class: "box", id: "weights" }, el("h2", {}, "Set the weights yourself"),
      el("p", { class: "note" }, check(own)),
      el("form", { class: "weights", "aria-label": "Weights", submit: (event) => event.preventDefault() },
        sliders.map((one) => one.element)),
      el("p", { class: "filters" }, el("label", {}, "rollouts of ", phase), back), result);
  }

  const written = (weight) => String(weight).replace("-", "−");

  function slider(name, chosen, fill) {
    const id = `weight-${names().indexOf(name)}`;
    const shown = el("output", { for: id });
    const range = el("input", { id, type: "range", min: "-2", max: "2", step: "0.05", input: () => {
      chosen.weights[name] = Number(range.value);
      shown.textContent = written(chosen.weights[name]);
      fill();
    } });
    const set = (weight) => {
      if (Math.abs(weight) > 2) Object.assign(range, { min: String(-Math.abs(weight)), max: String(Math.abs(weight)) });
      if (Math.round(weight * 20) !== weight * 20) range.step = "any"; // such as 0.01
      range.value = String(weight);
      chosen.weights[name] = weight;
      shown.textContent = written(weight);
    };
    set(chosen.weights[name]);
    return { name, set, element: el("div", {}, el("label", { for: id }, name), range, shown) };
  }

  // Whether this page and the run mean the same by the weights of the run.
  function check(own) {
    if (own.text === null) return "The folder does not say which weights the run had: it left the reward to its environment.";
    const { reward } = lists.index.columns;
    const sums = weigh(own);
    const scored = sums.map((_, i) => i).filter((i) => reward[i] !== null);
    const same = scored.filter((i) => sums[i] !== null && Math.abs(sums[i] - reward[i]) <= CLOSE + 1e-3 * Math.abs(reward[i])).length;
    const text = `With the weights of the run, ${own.text}, the sum of the recorded components is the recorded reward of ${number(same)} of ${number(scored.length)} rollouts.`;
    return same === scored.length ? text : `${text} The others had other weights (another task or an earlier stage), or a component that was not recorded.`;
  }

  function outcome(chosen, phase) {
    const c = lists.index.columns;
    const sums = weigh(chosen);
    const here = sums.map((_, i) => i).filter((i) => lists.index.phases[c.phase[i]] === phase && sums[i] !== null);
    const text = expression(chosen);
    if (!here.length) return [el("p", { role: "status" }, "No rollout of this phase has a score.")];
    const mean = here.reduce((sum, i) => sum + sums[i], 0) / here.length;
    const groups = new Map(here.map((i) => [c.group[i], lists.groupOf(i).filter((other) => sums[other] !== null)]));
    const several = [...groups.values()].filter((members) => members.length > 1);
    const mixed = several.filter((members) => spread(members, sums));
    const moved = here.map((i) => ({ i, before: lists.overGroup(c.reward, i), after: lists.overGroup(sums, i) }));
    const turned = moved.filter(({ before, after }) => before * after < -CLOSE * CLOSE);
    const best = several.filter((members) => spread(members, c.reward) && spread(members, sums) && !shareBest(members, c.reward, sums));
    const isTurned = new Set(turned.map(({ i }) => i));
    moved.sort((a, b) => isTurned.has(b.i) - isTurned.has(a.i) || Math.abs(b.after - b.before) - Math.abs(a.after - a.before) || a.i - b.i);
    const rows = moved.filter(({ before, after }) => Math.abs(after - before) > CLOSE).slice(0, SHOWN);
    return [
      el("p", { class: "big", role: "status" }, `${text}: mean reward ${number(mean)} of ${count(here.length, "rollout")}.`),
      several.length ? el("dl", {},
        el("dt", {}, "groups with differences to learn from"), el("dd", {}, `${number(mixed.length)} of ${number(several.length)} (${percent(mixed.length / several.length)})`),
        el("dt", {}, "groups whose best rollouts are all others than before"), el("dd", {}, number(best.length)),
        el("dt", {}, "rollouts that change sides in their group"), el("dd", {}, number(turned.length)))
        : el("p", {}, "Every rollout of this phase is alone in its group, so there is none to be better than."),
      el("p", { class: "note" }, "To score with it on the command line:  ", el("code", {}, `searchrl score RUN --reward "${text}"`)),
      rows.length ? table(rows, sums, c) : el("p", {}, "No rollout would stand elsewhere in its group."),
    ];
  }

  const spread = (members, rewards) => Math.max(...members.map((i) => rewards[i])) - Math.min(...members.map((i) => rewards[i])) > CLOSE;

  function shareBest(members, first, second) {
    const [a, b] = [first, second].map((rewards) => Math.max(...members.map((i) => rewards[i])));
    return members.some((i) => Math.abs(first[i] - a) <= CLOSE && Math.abs(second[i] - b) <= CLOSE);
  }

  function table(rows, sums, c) {
    const head = ["rollouts that change sides, then those that move most", "when", "recorded", "above its group", "these weights", "above its group"];
    const side = (value) => el("td", { class: `n ${value < -CLOSE ? "minus" : value > CLOSE ? "plus" : ""}` }, signed(Math.abs(value) < CLOSE ? 0 : value));
    return SEARCHRL.scroll("Rollouts that would move most", el("table", { class: "tasks" },
      el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map(({ i, before, after }) => {
        const row = lists.row(i);
        return el("tr", {}, el("th", { scope: "row" }, el("a", { href: lists.groupLink(i) }, row.question || row.task)),
          el("td", { class: "n" }, lists.when(row)),
          el("td", { class: "n" }, number(c.reward[i])), side(before),
          el("td", { class: "n" }, number(sums[i])), side(after));
      }))));
  }

  return { draw };
})();

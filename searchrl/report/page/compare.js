// Two sets of rollouts on the tasks that both played: before and after, or two runs.
"use strict";

SEARCHRL.views.compare = (() => {
  const { el, number, signed, percent, count, side, groupBy, lists, given } = SEARCHRL;
  const SHOWN = 200;

  function sets() {
    const c = lists.index.columns;
    return groupBy(lists.all(), (i) => {
      const phase = lists.index.phases[c.phase[i]];
      return `${c.run[i]}.${phase}${phase === "train" ? "" : `.${c.step[i]}`}`;
    });
  }

  function defaults(names, count) {
    const phase = (run, wanted) => names.find((name) => name.startsWith(`${run}.${wanted}`));
    const last = (run) => phase(run, "after.") || phase(run, "eval.") || names.filter((name) => name.startsWith(`${run}.`)).pop();
    if (count > 1) return [last(0), last(1)];
    return [phase(0, "before.") || names[0], last(0)];
  }

  function label(name) {
    const [run, phase, step] = name.split(".");
    const { runs } = given.get("run");
    return `${runs.length > 1 ? `${runs[Number(run)].name}: ` : ""}${phase}${step === undefined ? "" : `, ${count(Number(step), "step")} done`}`;
  }

  function show(main, rest, query) {
    const all = sets();
    const names = [...all.keys()];
    const box = el("div", {});
    main.replaceChildren(el("h1", { tabindex: "-1" }, "Compare on the same tasks"));
    if (!names.length) {
      main.append(el("p", {}, "This run recorded no rollouts."));
      return;
    }
    const [a, b] = defaults(names, given.get("run").runs.length);
    const choice = (name, fallback) => el("select", { change: () => fill() },
      names.map((value) => el("option", { value, selected: (query.get(name) || fallback) === value }, label(value))));
    const [left, right] = [choice("a", a), choice("b", b)];
    const fill = () => {
      history.replaceState(null, "", `#/compare?${new URLSearchParams({ a: left.value, b: right.value })}`);
      compare(box, all.get(left.value), all.get(right.value));
      document.body.dataset.ready = location.hash;
    };
    main.append(el("form", { class: "box filters", "aria-label": "What is compared" }, el("label", {}, "A ", left), el("label", {}, "B ", right)), box);
    fill();
  }

  // Task -> its rollouts; a task that was played several times is compared by its mean.
  const byTask = (numbers) => groupBy(numbers, (i) => lists.index.columns.task[i]);

  function compare(box, ofA, ofB) {
    const [a, b] = [byTask(ofA), byTask(ofB)];
    const both = [...a.keys()].filter((task) => b.has(task)).map((task) => ({
      task, a: a.get(task), b: b.get(task), rewardA: lists.meanReward(a.get(task)), rewardB: lists.meanReward(b.get(task)),
    })).filter((one) => one.rewardA !== null && one.rewardB !== null);
    if (!both.length) {
      box.replaceChildren(el("p", { role: "status" }, "No task was played and scored on both sides."));
      return;
    }
    const change = (one) => one.rewardB - one.rewardA;
    const better = both.filter((one) => change(one) > 0).length;
    const worse = both.filter((one) => change(one) < 0).length;
    const average = both.reduce((sum, one) => sum + change(one), 0) / both.length;
    both.sort((x, y) => change(x) - change(y) || x.task - y.task);
    const largest = [...both].sort((x, y) => Math.abs(change(y)) - Math.abs(change(x))).slice(0, SHOWN);
    const shown = new Set(largest);
    const rows = both.filter((one) => shown.has(one)).map((one) => {
      const query = new URLSearchParams();
      for (const i of [...one.a.slice(0, 4), ...one.b.slice(0, 4)]) query.append("key", lists.key(i));
      const size = change(one);
      return el("tr", {}, el("th", { scope: "row" }, el("a", { href: `#/side?${query}` }, lists.index.tasks[one.task][3] || lists.index.tasks[one.task][1])),
        el("td", {}, lists.index.tasks[one.task][2]),
        el("td", { class: "n" }, el("a", { href: lists.link(one.a[0]), "aria-label": `A: ${number(one.rewardA)}` }, number(one.rewardA))),
        el("td", { class: "n" }, el("a", { href: lists.link(one.b[0]), "aria-label": `B: ${number(one.rewardB)}` }, number(one.rewardB))),
        el("td", { class: `n ${side(size)}` }, signed(size)));
    });
    box.replaceChildren(
      el("p", { class: "big", role: "status" }, `${both.length} tasks on both sides: ${better} better (${percent(better / both.length)}), ${worse} worse (${percent(worse / both.length)}), `
        + `${both.length - better - worse} the same. Mean change of the reward ${signed(average)}.`),
      el("p", { class: "note" }, `${rows.length < both.length ? `The ${rows.length} tasks that changed most. ` : ""}The largest losses first.`),
      SEARCHRL.table("Tasks on both sides", ["task, side by side", "kind", "reward A", "reward B", "change"], rows, { class: "tasks" }));
  }

  return { show, title: () => "Compare" };
})();

// Rollouts side by side: those of one group, or any two.
"use strict";

SEARCHRL.views.group = (() => {
  const { el, number, signed, side, lists } = SEARCHRL;

  async function show(main, name) {
    const first = lists.find(name);
    if (first === null) throw new Error(`This report has no rollout '${name}', whose group was asked for.`);
    const members = lists.groupOf(first);
    const row = lists.row(first);
    await draw(main, members, `Group: ${row.question || row.task}`,
      `${members.length} rollouts of one prompt, ${lists.when(row)}. Mean reward ${number(lists.meanReward(members))}. `
      + "An advantage says how much better a rollout was than this mean.");
  }

  async function draw(main, members, title, text) {
    const opened = await Promise.all(members.map((i) => lists.open(i)));
    main.replaceChildren(el("h1", { tabindex: "-1" }, title), el("p", {}, text), tree(members, opened),
      el("div", { class: "side", role: "region", "aria-label": "Side by side", tabindex: "0" },
        members.map((i, place) => card(lists.row(i), opened[place], place))));
  }

  // Rollouts below those that they continue, with the advantage of each turn of their own.
  function tree(members, opened) {
    if (!opened.some((one) => one.num_kept)) return "";
    const lists_of = new Map([["", el("ul", { class: "tree" })]]);
    opened.forEach((one, place) => {
      const row = lists.row(members[place]);
      const turns = one.turns.slice(one.num_kept).map((turn, n) => {
        const advantage = one.turn_advantages[one.num_kept + n];
        return [" → ", turn.action, " ", el("b", { class: side(advantage) }, signed(advantage))];
      });
      const below = el("ul");
      const from = one.num_kept ? ` behind turn ${one.num_kept}` : "";
      const above = (one.num_kept && lists_of.get(one.parent)) || lists_of.get("");
      above.append(el("li", {}, el("a", { href: lists.link(row.number) }, `Rollout ${place + 1}`), from, turns, ` · reward ${number(row.reward)}`, below));
      lists_of.set(lists.index.columns.id[members[place]], below);
    });
    return el("section", { class: "box", id: "tree" }, el("h2", {}, "Tree"),
      el("p", {}, "A rollout below another one continues it. A turn that they share is trained once, above."), lists_of.get(""));
  }

  function card(row, rollout, place) {
    const gold = new Set(rollout.gold_ids);
    const bar = el("span", { class: `adv ${row.advantage < 0 ? "minus" : "plus"}`, "aria-hidden": "true" });
    bar.style.setProperty("--part", `${Math.min(100, 40 * Math.abs(row.advantage || 0))}%`);
    return el("article", { class: "box" },
      el("h2", {}, el("a", { href: lists.link(row.number) }, `Rollout ${place + 1}`)),
      el("p", { class: "big" }, `reward ${number(row.reward)}, advantage `, el("b", { class: side(row.advantage) }, signed(row.advantage))),
      bar,
      el("p", {}, `${row.run ? "other run, " : ""}${lists.when(row)}. ${row.pattern}`),
      el("p", {}, Object.entries(row.scores).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${number(value)}`).join(" · ")),
      el("p", {}, "Answer: ", el("b", {}, rollout.final_answer === null ? "none" : rollout.final_answer)),
      el("ol", { class: "turns" }, rollout.turns.map((turn) => el("li", {},
        el("p", { class: "what" }, turn.action, turn.reason ? `: ${turn.reason}` : ""),
        el("pre", { tabindex: "0", class: "by-model" }, turn.text),
        turn.observation ? el("details", {}, el("summary", {}, `came back: ${turn.passages.map((id) => (gold.has(id) ? `${id} (gold)` : id)).join(", ") || "text"}`),
          el("pre", { tabindex: "0" }, turn.observation)) : null))));
  }

  return { show, draw, title: () => "Group" };
})();

SEARCHRL.views.side = {
  title: () => "Side by side",
  async show(main, rest, query) {
    const { lists } = SEARCHRL;
    const members = query.getAll("key").map((name) => lists.find(name)).filter((i) => i !== null);
    if (!members.length) throw new Error("The address names no rollouts of this report.");
    await SEARCHRL.views.group.draw(main, members, `Side by side: ${lists.row(members[0]).question}`,
      "The same task, played at different times.");
  },
};

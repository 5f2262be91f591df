// Every choice of a rollout whose policy has no tokens: what was legal, how probable, and what was taken.
"use strict";

SEARCHRL.choices = (() => {
  const { el, number, signed, percent, count } = SEARCHRL;
  const BYTES = 4; // of a number

  function draw(rollout, push, space) {
    const clipped = rollout.clipped ? new Set(rollout.clipped) : null;
    return el("section", { class: "box", id: "choices" }, el("h2", {}, "Choices"),
      el("p", { class: "note" }, "The legal actions before each choice, with the probability at which each could be drawn."),
      el("ol", { class: "choices" }, rollout.choices.map((choice, place) => one(rollout, choice, place, { clipped, push, space }))));
  }

  function one(rollout, choice, place, { clipped, push, space }) {
    const turn = rollout.turns[place];
    const taken = name(rollout, place);
    const legal = Object.entries(choice.probs);
    const isForced = legal.length === 1;
    return el("li", { class: "turn" },
      el("h3", {}, taken, el("span", { class: "dim" }, isForced ? " (nothing else was legal)" : "")),
      el("div", { class: "halves" },
        SEARCHRL.scroll(`Probabilities before choice ${place + 1}`, el("table", { class: "probs" },
          el("thead", {}, el("tr", {}, ["action", "probability", ""].map((text) => el("th", { scope: "col" }, text)))),
          el("tbody", {}, legal.map(([action, p]) => el("tr", { class: action === taken ? "taken" : "" },
            el("th", { scope: "row" }, action, action === taken ? " ◂ taken" : ""),
            el("td", { class: "n" }, small(p)), el("td", { class: "wide" }, bar(p))))))),
        facts(rollout, place, turn, clipped, push)),
      illegal(choice, space),
      saw(choice, space));
  }

  function illegal(choice, space) {
    const names = space ? space.actions.filter((action) => !(action in choice.probs)) : [];
    return names.length ? el("p", { class: "note" }, `Not legal: ${names.join(", ")}.`) : null;
  }

  // What the policy took; the environment may have done something else, which is the turn's.
  function name(rollout, place) {
    return rollout.actions[place];
  }

  function small(p) {
    return p !== null && p < 0.001 ? number(p) : percent(p);
  }

  function bar(p) {
    const drawn = el("span", { class: "prob", "aria-hidden": "true" });
    drawn.style.setProperty("--part", `${100 * (p || 0)}%`);
    return drawn;
  }

  function facts(rollout, place, turn, clipped, push) {
    const of = (column) => (column ? column[place] : null);
    const advantage = Array.isArray(rollout.advantage) ? of(rollout.advantage) : rollout.advantage;
    const isTrained = of(rollout.ratio) !== null;
    const isCut = clipped !== null && clipped.has(place);
    const size = isTrained && rollout.weight !== null && advantage !== null && !isCut ? rollout.weight * Math.abs(advantage) : null;
    const gold = new Set(rollout.gold_ids);
    const rows = [
      ["reward of the step", turn ? number(turn.reward) : "—"],
      ["entropy", of(rollout.entropy) === null ? null : `${number(of(rollout.entropy))} nats`],
      ["trained", isTrained ? "yes" : "no"],
      ["ratio", isTrained ? number(of(rollout.ratio)) : null],
      ["advantage", isTrained ? signed(advantage) : null],
      ["clipped", isTrained && clipped !== null ? (isCut ? "yes: no gradient" : "no") : null],
      ["share of the loss", size !== null && push.total ? `${percent(size / push.total)} of its step` : null],
      ["shown", turn && turn.passages.length ? turn.passages.map((id) => (gold.has(id) ? `${id} (gold)` : id)).join(", ") : null],
    ];
    return el("dl", {}, rows.filter(([, value]) => value !== null).map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));
  }

  function saw(choice, space) {
    if (choice.seen === null) {
      const total = space ? space.blocks.reduce((sum, block) => sum + block[1], 0) : null;
      return el("p", { class: "note" }, `What it saw was not recorded${total ? `: ${count(total, "number")}, more than log.max_seen` : ""}.`);
    }
    const numbers = decode(choice.seen);
    const blocks = space ? space.blocks : [["observation", numbers.length]];
    let start = 0;
    const rows = blocks.map(([block, width]) => {
      const part = numbers.slice(start, start + width);
      start += width;
      return [el("dt", {}, block), el("dd", {}, part.map(number).join("  "))];
    });
    return el("details", {}, el("summary", {}, `What it saw: ${count(numbers.length, "number")}`), el("dl", {}, rows));
  }

  function decode(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Array.from({ length: bytes.length / BYTES }, (_, place) => view.getFloat32(BYTES * place, true));
  }

  return { draw, name, small };
})();

// One rollout: why it earned what it did, what it found, and every token.
"use strict";

SEARCHRL.views.rollout = (() => {
  const { el, number, signed, percent, count, side, lists } = SEARCHRL;

  async function show(main, name, query) {
    const i = lists.find(name);
    if (i === null) throw new Error(`This report has no rollout '${name}'. Its list is under Rollouts.`);
    const row = lists.row(i);
    const rollout = await lists.open(i);
    const { before, after } = SEARCHRL.views.rollouts.beside(i);
    const token = query.has("token") ? Number(query.get("token")) : null;
    const tokens = SEARCHRL.tokens.draw(rollout, lists.stepPush(i), {
      token,
      summarise: (block) => summarise(block, rollout),
      onSelect: (place) => history.replaceState(null, "", `${lists.link(i)}?token=${place}`),
    });
    main.replaceChildren(
      el("h1", { tabindex: "-1" }, row.question || row.task),
      el("p", { class: "where" },
        `${row.run ? "other run, " : ""}${lists.when(row)} · ${row.env} · ${row.kind}${rollout.slices.length ? `, ${rollout.slices.join(", ")}` : ""} · ${row.task} · ${row.origin}`),
      el("nav", { class: "beside", "aria-label": "Beside this rollout" },
        before === null ? null : el("a", { rel: "prev", href: lists.link(before) }, "← previous"),
        el("a", { class: "group", href: lists.groupLink(i) }, "its group, side by side"),
        after === null ? null : el("a", { rel: "next", href: lists.link(after) }, "next →")),
      verdict(row, rollout),
      SEARCHRL.retrieval.draw(rollout),
      SEARCHRL.drawings.draw(rollout.drawings),
      tokens.section);
    tokens.begin();
  }

  function verdict(row, rollout) {
    const scores = Object.entries(row.scores).filter(([, value]) => value !== null);
    return el("section", { class: "box" },
      el("h2", {}, "Why"),
      el("p", { class: "big" }, `Reward ${number(row.reward)} · advantage ${signed(row.advantage)} · ${row.pattern}`),
      el("p", {}, because(row, rollout)),
      row.share === null ? null : el("p", {}, `Its tokens are ${percent(row.share)} of what pushed the policy in this step.`),
      el("div", { class: "halves" }, facts(row, rollout, scores), groupBars(row)),
      rollout.failure ? el("p", { role: "note", class: "minus" }, `${rollout.failure.owner} failed (${rollout.failure.kind}): ${rollout.failure.message}`) : null);
  }

  function facts(row, rollout, scores) {
    return el("dl", {},
        scores.map(([name, value]) => [el("dt", {}, name), el("dd", {}, number(value))]),
        Object.entries(rollout.signals).map(([name, value]) => [el("dt", {}, `signal ${name}`), el("dd", {}, number(value))]),
        rollout.segments.length < 2 ? null : [el("dt", {}, "segments"), el("dd", {},
          `${count(rollout.turns.length, "request")}. ${rollout.segments.map((_, at) => SEARCHRL.tokens.segmentTitle(rollout, at)).join(" · ")}`)],
        el("dt", {}, "its answer"), el("dd", {}, rollout.final_answer === null ? "none" : rollout.final_answer),
        el("dt", {}, "accepted answers"), el("dd", {}, rollout.answers.slice(0, 12).join(" | ") || "not known"),
        el("dt", {}, "why it stopped"), el("dd", {}, row.stop),
        el("dt", {}, "policy"), el("dd", {}, `after ${count(Math.max(0, rollout.policy_version), "update")}`));
  }

  // A sentence of what decided the advantage.
  function because(row, rollout) {
    const others = lists.groupOf(row.number).map(lists.row);
    const rewards = others.map((one) => one.reward).filter((value) => value !== null);
    const mean = lists.meanReward(lists.groupOf(row.number));
    if (rollout.unscored) return `It has no reward and was not trained on: ${rollout.unscored}`;
    if (row.phase !== "train") return "It was played to measure the policy. Nothing was trained on it, so it has no advantage.";
    if (!row.advantage && new Set(rewards).size === 1) {
      return `All ${rewards.length} rollouts of its group earned ${number(rewards[0])}. None was better than another, so nothing was learned from them.`;
    }
    if (row.advantage === null) return "It was not trained on: its group gave no gradient.";
    const measure = row.reward < mean ? "less than" : row.reward > mean ? "more than" : "as much as";
    const { rewarded } = SEARCHRL.given.get("run").runs[row.run];
    const apart = Object.entries(row.scores).filter(([name, value]) => {
      if (rewarded.length && !rewarded.includes(name)) return false; // it is only measured
      const all = others.map((one) => one.scores[name]).filter((one) => one !== null);
      const middle = all.reduce((a, b) => a + b, 0) / all.length;
      return value !== null && Math.abs(value - middle) > 1e-9 && value < middle === row.reward < mean;
    }).map(([name, value]) => `${name} ${number(value)}`);
    return `It earned ${number(row.reward)}, ${measure} the mean of its group of ${others.length}, which is ${number(mean)}.`
      + (apart.length ? ` What sets it apart: ${apart.join(", ")}.` : "")
      + (Math.sign(row.reward - mean) === Math.sign(row.advantage) ? "" : " The algorithm compares it with more than its group.")
      + (row.advantage < 0 ? ` So the update pushes its tokens down.` : row.advantage > 0 ? ` So the update pushes its tokens up.` : "");
  }

  function groupBars(row) {
    const others = lists.groupOf(row.number).map(lists.row);
    if (others.length < 2) return null;
    return el("div", {}, el("h3", {}, "Its group"), el("ul", { class: "members" }, others.map((one, place) => el("li", {
      class: one.number === row.number ? "own" : "",
    }, el("a", { href: lists.link(one.number), "aria-current": one.number === row.number ? "true" : null }, `rollout ${place + 1}`),
    ` reward ${number(one.reward)}, advantage `, el("b", { class: side(one.advantage) }, signed(one.advantage)),
    `, ${one.pattern}`))));
  }

  // What a turn earned and what it was taught, where turns are told apart.
  function credit(block, turn) {
    const own = block.tokens.map((token) => token.advantage).filter((value) => value !== null);
    const mean = own.reduce((a, b) => a + b, 0) / own.length;
    return (turn.score === null || turn.score === undefined ? "" : `, score ${number(turn.score)}`)
      + (own.length ? `, advantage ${signed(mean)}` : "");
  }

  function summarise(block, rollout) {
    const size = count(block.tokens.length, "token");
    if (block.author === "P") return { title: `Prompt, ${size}`, isOpen: false };
    const turn = rollout.turns[block.turn] || { action: "", queries: [], passages: [] };
    const number_ = `Turn ${block.turn + 1}`;
    if (block.author === "M") {
      const what = turn.queries && turn.queries.length ? `: ${turn.queries.join(" · ")}` : turn.reason ? `: ${turn.reason}` : "";
      return { title: `${number_}, the model: ${turn.action}${what}, ${size}${credit(block, turn)}`, isOpen: true };
    }
    const gold = new Set(rollout.gold_ids);
    const shown = turn.passages.map((id) => (gold.has(id) ? `${id} (gold)` : id)).join(", ");
    return { title: `${number_}, what came back${shown ? `: ${shown}` : ""}, ${size}`, isOpen: false };
  }

  return { show, title: () => "Rollout" };
})();

// Where the evidence was, what was shown, and how the queries changed.
"use strict";

SEARCHRL.retrieval = (() => {
  const { el } = SEARCHRL;

  function draw(rollout) {
    const searches = rollout.turns.map((turn, number) => ({ ...turn, number })).filter((turn) => turn.action === "search");
    const box = el("section", { class: "box retrieval" }, el("h2", {}, "Retrieval"));
    if (!rollout.gold_ids.length) box.append(el("p", {}, "The task names no gold passages."));
    if (!searches.length) {
      box.append(el("p", {}, "It never searched."));
      return box;
    }
    const last = searches[searches.length - 1].number;
    const after = rollout.turns[last + 1];
    box.append(el("p", {}, `It searched in ${searches.length} of ${rollout.turns.length} turns, the last time in turn ${last + 1}. `,
      after ? `Then: ${after.action}${after.reason ? ` (${after.reason})` : ""}.` : "There was no turn after that."));
    const queries = el("div", {}, el("h3", {}, "Queries and what they showed"),
      el("ol", { class: "queries" }, steps(rollout, searches)));
    box.append(el("div", { class: rollout.gold_ids.length ? "halves" : "" }, queries, rollout.gold_ids.length ? ranks(rollout, searches) : null));
    return box;
  }

  function ranks(rollout, searches) {
    const head = ["gold passage", ...searches.map((turn) => `turn ${turn.number + 1}`)];
    const rows = rollout.gold_ids.map((id, hop) => el("tr", {},
      el("th", { scope: "row" }, `hop ${hop + 1}: ${id}`), searches.map((turn) => cell(turn, id))));
    const known = searches.some((turn) => turn.ranks);
    return el("div", {}, el("h3", {}, "Rank of the gold passages"),
      known ? null : el("p", { class: "note" }, "Ranks of passages that were not shown: not recorded."),
      SEARCHRL.table("Rank of the gold passages", head, rows));
  }

  function cell(turn, id) {
    const at = turn.passages.indexOf(id);
    const found = (turn.ranks || []).map((one) => one[id]).filter((rank) => rank !== undefined);
    const best = found.filter((rank) => rank !== null).sort((a, b) => a - b)[0];
    const rank = !found.length ? "rank not recorded" : best === undefined ? "not found" : `rank ${best}`;
    if (at >= 0) return el("td", { class: "plus" }, found.length ? `shown, ${rank}` : `shown as number ${at + 1}`);
    return el("td", { class: "minus" }, found.length ? `not shown, ${rank}` : "not shown, rank not recorded");
  }

  function steps(rollout, searches) {
    const gold = new Set(rollout.gold_ids);
    const seen = new Set();
    return searches.map((turn, at) => {
      const before = at ? searches[at - 1].queries.join(" ") : null;
      const shown = turn.passages.map((id) => {
        const marks = [gold.has(id) ? "gold" : "", seen.has(id) ? "seen before" : ""].filter(Boolean).join(", ");
        return el("li", { class: gold.has(id) ? "plus" : "" }, id, marks ? ` (${marks})` : "");
      });
      turn.passages.forEach((id) => seen.add(id));
      return el("li", {}, el("p", {}, `Turn ${turn.number + 1}: `,
        turn.queries.map((query, place) => [place ? " · " : "", el("q", {}, before === null ? query : changed(before, query))])),
        shown.length ? el("ol", { class: "shown" }, shown) : el("p", { class: "note" }, "Nothing was shown."),
        turn.observation ? el("details", {}, el("summary", {}, "What it read"), el("pre", { tabindex: "0" }, turn.observation)) : null);
    });
  }

  // The words of a query: those that the one before it did not have, and those that it dropped.
  function changed(before, query) {
    const old = before.split(/\s+/).filter(Boolean);
    const now = query.split(/\s+/).filter(Boolean);
    const had = new Set(old.map((word) => word.toLowerCase()));
    const has = new Set(now.map((word) => word.toLowerCase()));
    const words = now.map((word) => (had.has(word.toLowerCase()) ? word : el("ins", {}, word)));
    const gone = old.filter((word) => !has.has(word.toLowerCase())).map((word) => el("del", {}, word));
    return [...words, ...gone].flatMap((word, place) => (place ? [" ", word] : [word]));
  }

  return { draw };
})();

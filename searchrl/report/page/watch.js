// A run that is still going: loads what has changed, and shows it without moving the reader.
"use strict";

(() => {
  const { el, number, signed, given, load, lists, views } = SEARCHRL;
  const main = document.getElementById("main");
  const PAUSE_MS = 1000;
  const LAST = 4; // groups on the first page
  let versions = null;
  let isWaiting = false; // the first page is behind, because a text of it is selected

  async function poll() {
    versions ??= given.get("live").versions;
    given.delete("live");
    try {
      const live = await load("live");
      const changed = Object.keys(live.versions).filter((name) => live.versions[name] !== versions[name]);
      for (const name of changed) given.delete(name);
      await Promise.all(["words", "index", "run"].map(load));
      versions = live.versions;
      if (changed.length) lists.begin(given.get("index"));
      if (changed.length || isWaiting) refresh();
      say(live.state);
    } catch {
      say("the watch has ended, or cannot be reached");
    }
    setTimeout(poll, PAUSE_MS);
  }

  function say(state) {
    const curves = Object.values(given.get("run").runs[0].curves).flatMap(Object.values);
    const step = Math.max(0, ...curves.map((points) => points.at(-1)[0]));
    const text = `Step ${step} · ${number(lists.index.size)} rollouts · ${state}`;
    const status = document.getElementById("live");
    if (status.textContent !== text) status.textContent = text;
  }

  // The first page and the list are drawn anew; whatever else is open stays as it is.
  function refresh() {
    views.rollouts.refresh();
    const isFirst = /^(#\/?(run)?([?].*)?)?$/.test(location.hash);
    isWaiting = isFirst && !getSelection().isCollapsed;
    if (isFirst && !isWaiting) keepPlace(() => views.run.show(main));
  }

  function keepPlace(draw) {
    const all = (selector) => [...main.querySelectorAll(selector)];
    const open = new Map(all("details").map((one) => [one.firstChild.textContent, one.open]));
    const scrolled = all("pre, .scroll").map((one) => [one.scrollLeft, one.scrollTop]);
    const isChecked = all("input").map((one) => one.checked);
    const focused = all("a, button, input, summary, [tabindex]").indexOf(document.activeElement);
    const top = (one) => one.getBoundingClientRect().top;
    const anchor = all("section[id]").find((one) => one.getBoundingClientRect().bottom > 0);
    const before = anchor && top(anchor);
    draw();
    for (const one of all("details")) one.open = open.get(one.firstChild.textContent) ?? one.open;
    all("input").forEach((one, at) => isChecked[at] && one.click());
    all("pre, .scroll").forEach((one, at) => scrolled[at] && one.scrollTo(...scrolled[at]));
    all("a, button, input, summary, [tabindex]")[focused]?.focus({ preventScroll: true });
    const after = anchor && document.getElementById(anchor.id);
    if (after) window.scrollBy({ top: top(after) - before, behavior: "instant" });
  }

  // The groups of the last step, each with the advantages of its rollouts.
  SEARCHRL.lastGroups = () => {
    const trained = lists.all().filter((i) => lists.row(i).phase === "train");
    const step = trained.reduce((most, i) => Math.max(most, lists.index.columns.step[i]), 0);
    const firsts = trained.filter((i) => lists.index.columns.step[i] === step && lists.groupOf(i)[0] === i);
    const items = firsts.slice(0, LAST).map((i) => el("li", {},
      el("a", { href: lists.groupLink(i) }, lists.row(i).question || lists.row(i).task), ` reward ${number(lists.meanReward(lists.groupOf(i)))}, advantages `,
      lists.groupOf(i).map((at) => el("a", { href: lists.link(at) }, signed(lists.row(at).advantage), " "))));
    return el("section", { class: "box", id: "last" }, el("h2", {}, "Last groups"),
      items.length ? el("ul", {}, items) : el("p", {}, "No step has ended yet."));
  };

  window.addEventListener("load", () => setTimeout(poll, PAUSE_MS));
})();

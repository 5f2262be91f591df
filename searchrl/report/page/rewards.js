// What other rewards would have said of the same rollouts: those that were scored again when the
// page was written, and the recorded components under weights that the reader sets (weights.js).
"use strict";

SEARCHRL.views.rewards = (() => {
  const { el, number, percent, lists, given } = SEARCHRL;

  const LEAST = 0.01; // of the rollouts of a phase
  const SHOWN = 12;

  function show(main, rest, query) {
    const { again, runs } = given.get("run");
    const parts = [el("h1", { tabindex: "-1" }, "Other rewards"),
      el("p", {}, "The same rollouts under another reward: which of them would have been better than their group, and which worse?"),
      ...again.flatMap((ofRun, run) => ofRun.map((one) => compared(one, run, runs))),
      again.length ? null : el("p", { class: "note" }, "For a reward with components that were not recorded, write this page with  searchrl inspect RUN --reward EXPR."),
      SEARCHRL.weights.draw(query)];
    main.replaceChildren(...parts.filter(Boolean));
  }

  function compared(one, run, runs) {
    const head = ["phase", "rollouts", "mean, recorded", "mean, this one", "rank correlation: tau", "rho", "tau within groups", "groups with another best"];
    const rows = Object.entries(one.phases).map(([phase, two]) => el("tr", {},
      el("th", { scope: "row" }, phase),
      el("td", { class: "n" }, number(two.n), two.unscored[1] ? ` (${number(two.unscored[1])} not scored)` : ""),
      [two.first?.value, two.second?.value, two.kendall_tau, two.spearman_rho].map((value) => el("td", { class: "n" }, number(value))),
      el("td", { class: "n" }, number(two.group_tau), two.groups ? ` in ${number(two.groups)}` : ""),
      el("td", { class: "n" }, number(two.best_differs))));
    const gap = ({ first, second }) => Math.abs(first.rank - second.rank);
    const apart = Object.values(one.phases).flatMap((two) => two.disagreements)
      .filter((found) => gap(found) >= LEAST).sort((a, b) => gap(b) - gap(a)).slice(0, SHOWN);
    return el("section", { class: "box" },
      el("h2", {}, runs.length > 1 ? `${one.reward}, ${runs[run].name}` : one.reward, " beside the recorded reward"),
      el("p", { class: "note" }, "Each rollout was scored again. Rank correlation: 1 is the same order, −1 the opposite; what is constant has none. ",
        el("a", { href: `#/rollouts?sort=${encodeURIComponent(`-again:${one.reward}`)}` }, "All rollouts in its order.")),
      SEARCHRL.scroll(`${one.reward} beside the recorded reward`, el("table", {},
        el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows))),
      el("h3", {}, "Where the two disagree most"),
      apart.length ? disagreements(one.reward, apart, run) : el("p", {}, `No rollout moves by ${percent(LEAST)} of the order or more.`));
  }

  function disagreements(name, apart, run) {
    const head = ["rollout", "when", "recorded", "better than", name, "better than"];
    return SEARCHRL.scroll(`Where ${name} disagrees`, el("table", { class: "tasks" },
      el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, apart.map(({ rollout, first, second }) => {
        const row = lists.row(lists.find(`${run ? "other:" : ""}${rollout}`));
        return el("tr", {}, el("th", { scope: "row" }, el("a", { href: lists.link(row.number) }, row.question || row.task)),
          el("td", { class: "n" }, lists.when(row)),
          el("td", { class: "n" }, number(first.reward)), el("td", { class: "n" }, percent(first.rank)),
          el("td", { class: "n" }, number(second.reward)), el("td", { class: "n" }, percent(second.rank)));
      }))));
  }

  return { show, title: () => "Rewards" };
})();

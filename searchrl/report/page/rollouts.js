// The list of rollouts: filter, sort, and how many there are of each outcome pattern.
"use strict";

SEARCHRL.views.rollouts = (() => {
  const { el, number, percent, lists } = SEARCHRL;
  const PAGE = 50;
  const ONLY = [
    ["", "all"],
    ["trained", "trained on"],
    ["negative", "negative advantage"],
    ["positive", "positive advantage"],
    ["mixed", "groups with differences"],
    ["searched", "searched"],
    ["no-gold", "searched, gold missed"],
    ["failed", "failed or not scored"],
  ];
  let current = []; // the rollouts of the list, in its order
  let refresh = () => {}; // the list anew, from an index that has grown

  function tests() {
    const c = lists.index.columns;
    return {
      trained: (i) => c.advantage[i] !== null && c.advantage[i] !== 0,
      negative: (i) => c.advantage[i] < 0,
      positive: (i) => c.advantage[i] > 0,
      mixed: (i) => new Set(lists.groupOf(i).map((other) => c.reward[other])).size > 1,
      searched: (i) => c.searches[i] > 0,
      "no-gold": (i) => c.searches[i] > 0 && c.gold[i] !== null && c.gold[i] < 1,
      failed: (i) => lists.index.failures[c.failure[i]] !== "",
    };
  }

  function columns() {
    const c = lists.index.columns;
    const named = (names, column) => (i) => names[column[i]];
    return [
      ["question", "question", (i) => lists.index.tasks[c.task[i]][3]],
      ["when", "when", (i) => `${lists.index.phases[c.phase[i]]} ${c.step[i]}`, (i) => c.step[i]],
      ["reward", "reward", (i) => c.reward[i]],
      ...Object.keys(lists.index.scores).map((name) => [`score:${name}`, name, (i) => lists.index.scores[name][i]]),
      ["advantage", "advantage", (i) => c.advantage[i]],
      ["share", "share of the loss", (i) => percent(lists.share(i)), (i) => lists.share(i)],
      ...("support_recall" in lists.index.scores ? [] : [["gold", "gold shown", (i) => c.gold[i]]]),
      ...("searches" in lists.index.scores ? [] : [["searches", "searches", (i) => c.searches[i]]]),
      ["turns", "turns", (i) => c.turns[i]],
      ["tokens", "tokens written", (i) => c.tokens[i]],
      ["stop", "stop reason", named(lists.index.stops, c.stop)],
      ...(lists.index.failures.some(Boolean) ? [["failure", "failure", named(lists.index.failures, c.failure)]] : []),
    ];
  }

  function choose(query, { patterns = true } = {}) {
    const { index } = lists;
    const c = index.columns;
    const wanted = [];
    const among = (name, names, column) => {
      if (query.get(name)) wanted.push((i) => names[column[i]] === query.get(name));
    };
    among("phase", index.phases, c.phase);
    among("stop", index.stops, c.stop);
    if (query.get("kind")) wanted.push((i) => index.tasks[c.task[i]][2] === query.get("kind"));
    if (patterns) among("pattern", index.patterns, c.pattern);
    if (query.get("run")) wanted.push((i) => c.run[i] === Number(query.get("run")));
    if (query.get("from")) wanted.push((i) => c.step[i] >= Number(query.get("from")));
    if (query.get("to")) wanted.push((i) => c.step[i] <= Number(query.get("to")));
    const only = tests()[query.get("only")];
    if (only) wanted.push(only);
    const scores = index.scores[query.get("score")];
    if (scores && query.get("value")) wanted.push((i) => String(scores[i]) === query.get("value"));
    const text = (query.get("text") || "").toLowerCase();
    if (text) {
      const holds = (value) => value && value.toLowerCase().includes(text);
      wanted.push((i) => holds(index.tasks[c.task[i]][3]) || holds(index.tasks[c.task[i]][1]) || holds(c.answer[i]) || holds(c.id[i]));
    }
    return lists.all().filter((i) => wanted.every((test) => test(i)));
  }

  // The step of training that a rollout is of: the last one stands first.
  function trained(i) {
    const { columns, phases } = lists.index;
    return phases[columns.phase[i]] === "train" ? columns.step[i] : -1;
  }

  function sort(found, query) {
    const name = (query.get("sort") || "").replace(/^-/, "");
    const column = columns().find((one) => one[0] === name);
    if (!column) return [...found].sort((i, j) => trained(j) - trained(i) || i - j);
    const value = column[3] || column[2];
    const sign = query.get("sort").startsWith("-") ? -1 : 1;
    const keyed = found.map((i) => [value(i), i]);
    keyed.sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j; // what is missing comes last
      return (a < b ? -sign : a > b ? sign : 0) || i - j;
    });
    return keyed.map((pair) => pair[1]);
  }

  function show(main, rest, query) {
    const list = el("div", { id: "list" });
    const groups = el("section", { class: "box patterns" });
    const update = (changes) => {
      for (const [name, value] of Object.entries(changes)) {
        if (value) query.set(name, value);
        else query.delete(name);
      }
      if (!("page" in changes)) query.delete("page");
      history.replaceState(null, "", `#/rollouts${query.size ? `?${query}` : ""}`);
      fill();
    };
    const fill = () => {
      current = sort(choose(query), query);
      fillPatterns(groups, query, update);
      fillList(list, query, update);
      document.body.dataset.ready = location.hash;
    };
    let form = controls(query, update);
    main.replaceChildren(el("h1", { tabindex: "-1" }, "Rollouts"), form, groups, list);
    fill();
    refresh = () => {
      const isUsed = form.contains(document.activeElement);
      if (!isUsed) form.replaceWith(form = controls(query, update));
      fill();
    };
  }

  function controls(query, update) {
    const { index } = lists;
    const pick = (name, label, values) => {
      const choice = el("select", { change: () => update({ [name]: choice.value }) },
        values.map(([value, text]) => el("option", { value, selected: (query.get(name) || "") === value }, text)));
      return el("label", {}, `${label} `, choice);
    };
    const plain = (values) => [["", "any"], ...values.map((value) => [value, value])];
    const search = el("input", {
      id: "search", type: "search", value: query.get("text") || "", placeholder: "question, answer, id",
      input: () => update({ text: search.value }),
    });
    const kinds = [...new Set(index.tasks.map((task) => task[2]))];
    const values = el("span", {});
    const fillValues = () => {
      const column = index.scores[query.get("score")] || [];
      const found = [...new Set(column.filter((value) => value !== null))].sort((a, b) => a - b).slice(0, 30);
      values.replaceChildren(...(query.get("score") ? [pick("value", "is", plain(found.map(String)))] : []));
    };
    const score = pick("score", "component", plain(Object.keys(index.scores)));
    score.querySelector("select").addEventListener("change", () => {
      update({ value: "" });
      fillValues();
    });
    fillValues();
    const runs = SEARCHRL.given.get("run").runs;
    return el("form", { class: "box filters", "aria-label": "Filter", submit: (event) => event.preventDefault() },
      el("label", {}, "search ", search),
      pick("only", "show", ONLY),
      pick("phase", "phase", plain(index.phases)),
      pick("kind", "task kind", plain(kinds)),
      pick("stop", "stop reason", plain(index.stops)),
      score, values,
      runs.length > 1 ? pick("run", "run", [["", "both"], ...runs.map((run, place) => [String(place), run.name])]) : null,
      query.get("from") || query.get("to")
        ? el("span", {}, `steps ${query.get("from") || 0} to ${query.get("to") || "the last"} `,
          el("button", { type: "button", click: (event) => { update({ from: "", to: "" }); event.target.parentNode.remove(); } }, "all steps"))
        : null);
  }

  function fillPatterns(box, query, update) {
    const { index } = lists;
    const found = choose(query, { patterns: false });
    const rows = [...SEARCHRL.groupBy(found, (i) => index.columns.pattern[i])].sort((a, b) => b[1].length - a[1].length);
    const chosen = query.get("pattern");
    const buttons = rows.map(([pattern, members]) => {
      const name = index.patterns[pattern];
      const bar = el("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--part", `${(100 * members.length) / found.length}%`);
      return el("li", {}, el("button", {
        type: "button", "aria-pressed": String(chosen === name),
        click: () => update({ pattern: chosen === name ? "" : name }),
      }, bar, el("span", {}, name), el("span", { class: "dim n" },
        ` ${members.length} (${percent(members.length / found.length)}), mean reward ${number(lists.meanReward(members))}`)));
    });
    const held = box.contains(document.activeElement) ? document.activeElement.textContent : null;
    box.replaceChildren(el("h2", {}, "Outcome patterns"), el("ul", {}, buttons));
    if (held) [...box.querySelectorAll("button")].find((one) => one.textContent === held)?.focus();
  }

  function fillList(box, query, update) {
    const pages = Math.max(1, Math.ceil(current.length / PAGE));
    const page = Math.min(pages, Math.max(1, Number(query.get("page")) || 1));
    const shown = current.slice((page - 1) * PAGE, page * PAGE);
    const every = columns();
    const sorted = query.get("sort") || "";
    const head = every.map(([name, label]) => {
      const direction = sorted === name ? "ascending" : sorted === `-${name}` ? "descending" : null;
      const next = direction === "ascending" ? `-${name}` : direction === "descending" ? "" : name;
      const mark = { ascending: " ▲", descending: " ▼" }[direction] || "";
      return el("th", { scope: "col", "aria-sort": direction },
        el("button", { type: "button", class: "plain", "data-sort": name, click: () => update({ sort: next }) }, label, mark));
    });
    const body = shown.map((i) => el("tr", {}, every.map(([name, , value]) => {
      if (name === "question") return el("th", { scope: "row" }, el("a", { href: lists.link(i), class: "rollout" }, value(i) || "(no text)"));
      if (name === "advantage" && value(i) !== null) {
        return el("td", { class: `n ${SEARCHRL.side(value(i))}` },
          el("a", { href: lists.groupLink(i), title: "its group, side by side" }, SEARCHRL.signed(value(i))));
      }
      const shownValue = value(i);
      return el("td", { class: name === "when" || typeof shownValue === "number" || shownValue === null ? "n" : "" }, typeof shownValue === "number" || shownValue === null ? number(shownValue) : shownValue);
    })));
    const turn = (to, label) => el("button", { type: "button", disabled: to < 1 || to > pages, click: () => update({ page: String(to) }) }, label);
    const focused = document.activeElement && box.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    box.replaceChildren(
      el("p", { role: "status" }, `${current.length.toLocaleString("en")} of ${lists.index.size.toLocaleString("en")} rollouts`),
      SEARCHRL.scroll("Rollouts", el("table", { class: "list" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body))),
      el("p", { class: "pages" }, turn(page - 1, "Previous"), ` page ${page} of ${pages} `, turn(page + 1, "Next")));
    if (focused) box.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  // The rollouts beside one, in the list that it was opened from.
  function beside(i) {
    const list = current.includes(i) ? current : lists.all();
    const at = list.indexOf(i);
    return { before: at > 0 ? list[at - 1] : null, after: at + 1 < list.length ? list[at + 1] : null };
  }

  return { show, beside, refresh: () => refresh(), title: () => "Rollouts" };
})();

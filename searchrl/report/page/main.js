// Which view the address names, the keys, and where the focus goes.
"use strict";

(() => {
  const { el, views, lists, given } = SEARCHRL;
  const main = document.getElementById("main");
  let isFirst = true;

  function parse() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [name, ...rest] = path.split("/");
    return { name: name || "run", rest: decode(rest.join("/")), query: new URLSearchParams(query || "") };
  }

  function decode(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text; // a percent sign that is just one
    }
  }

  async function route() {
    const { name, rest, query } = parse();
    const view = views[name] || views.run;
    const shown = { rollout: "rollouts", group: "rollouts", side: "compare" }[name] || (views[name] ? name : "run");
    for (const link of document.querySelectorAll("nav a")) {
      if (link.dataset.view === shown) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    try {
      await view.show(main, rest, query);
    } catch (error) {
      main.replaceChildren(el("h1", { tabindex: "-1" }, "This cannot be shown"), el("p", { role: "alert" }, error.message));
    }
    const title = main.querySelector("h1");
    document.title = `${view.title(rest)} · ${given.get("run").name || given.get("run").runs[0].name} · SearchRL`;
    if (!isFirst && title && !query.has("token")) title.focus({ preventScroll: true });
    if (!isFirst && !query.has("token")) window.scrollTo(0, 0);
    if (query.has("see")) document.getElementById(query.get("see"))?.scrollIntoView();
    isFirst = false;
    document.body.dataset.ready = (location.hash || "#/").replace(/[?]token=.*/, "");
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, select, textarea");
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    const target = { 1: "#/", 2: "#/rollouts", 3: "#/compare", 4: "#/help", "?": "#/help" }[event.key];
    if (target) location.hash = target;
    else if (event.key === "/") focusSearch(event);
    else if ("jkg".includes(event.key)) follow(event.key);
  }

  function focusSearch(event) {
    event.preventDefault();
    const field = document.getElementById("search");
    if (field) field.focus();
    else location.hash = "#/rollouts";
  }

  function follow(key) {
    const link = document.querySelector({ j: "a[rel=next]", k: "a[rel=prev]", g: "a.group" }[key]);
    if (link) link.click();
  }

  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names the view
    main.focus();
  });
  lists.begin(given.get("index"));
  window.addEventListener("hashchange", route);
  document.addEventListener("keydown", press);
  route();
})();

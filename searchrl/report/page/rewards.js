// The recorded components under weights that the reader sets (weights.js).
"use strict";

SEARCHRL.views.rewards = (() => {
  const { el } = SEARCHRL;

  function show(main, rest, query) {
    main.replaceChildren(el("h1", { tabindex: "-1" }, "Other rewards"),
      el("p", {}, "The same rollouts under another reward: which of them would have been better than their group, and which worse?"),
      el("p", { class: "note" }, "For a reward with components that were not recorded: searchrl score RUN --reward EXPR."),
      SEARCHRL.weights.draw(query));
  }

  return { show, title: () => "Rewards" };
})();

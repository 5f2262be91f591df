// What the page means, the keys, and the ten questions of a newcomer.
"use strict";

SEARCHRL.QUESTIONS = [
  ["Did training help, and by how much?", "#/?see=before-after"],
  ["When did the agent begin or stop to search?", "#/?see=curves"],
  ["Which tokens were trained?", "#/rollouts?phase=train&only=trained"],
  ["Why did a rollout get a negative advantage?", "#/rollouts?phase=train&only=negative&sort=advantage"],
  ["Where did retrieval fail?", "#/rollouts?only=no-gold"],
  ["What did the model read?", "#/rollouts?only=searched"],
  ["How unsure was the model of each token?", "#/rollouts?phase=train&only=trained"],
  ["What did the rollouts of one group do differently?", "#/rollouts?phase=train&only=mixed"],
  ["Which tasks got better, which got worse?", "#/compare"],
  ["What failed, and who failed?", "#/rollouts?only=failed"],
];

SEARCHRL.views.help = (() => {
  const { el } = SEARCHRL;
  const WORDS = [
    ["rollout", "One attempt at one task: what the model wrote, turn by turn, and what came back."],
    ["group", "All rollouts of one prompt in one step. They are compared with each other."],
    ["reward", "The number that a rollout earned: a weighted sum of components, such as format and em."],
    ["advantage", "How much better a rollout was than its group. Above 0: the update makes its tokens more likely. Below 0: less."],
    ["trained", "A token that the model wrote and that entered the loss. Prompt and retrieved text never do."],
    ["log-prob", "The logarithm of the probability with which the model drew this token."],
    ["ratio", "Probability under the policy that is trained over that under the sampler, at the first update. It should be 1 then."],
    ["clipped", "The ratio left the band that the algorithm allows, so that this token gave no gradient."],
    ["entropy", "How unsure the model was at this token, in nats: 0 is sure, 0.69 is a coin, 2.3 is one in ten."],
    ["share of the loss", "Weight times size of the advantage of a token, over the sum of that for all tokens of the step that no clip took out: how hard it was pushed."],
    ["gold", "A passage that the task names as evidence. A task with two hops has two."],
    ["outcome pattern", "How often a rollout searched, whether it was shown the gold passages, and how it ended. Rules, no model."],
    ["without search", "It answered without searching; `passive` in the files of a run."],
  ];
  const KEYS = [
    ["1, 2, 3, 4", "Run, Rollouts, Compare, Help"],
    ["/", "the search field of the rollouts"],
    ["j, k", "the next and the previous rollout of the list that you came from"],
    ["g", "the group of this rollout"],
    ["arrow keys", "in tokens: the token before or after; Home and End: the first and the last of the turn"],
    ["Escape", "out of a field"],
  ];

  function show(main) {
    const list = (rows) => el("dl", {}, rows.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
    main.replaceChildren(
      el("h1", { tabindex: "-1" }, "Help"),
      el("section", { class: "box" }, el("h2", {}, "Ten questions"),
        el("ol", {}, SEARCHRL.QUESTIONS.map(([text, target]) => el("li", {}, el("a", { href: target }, text))))),
      el("section", { class: "box" }, el("h2", {}, "Words"), list(WORDS)),
      el("section", { class: "box" }, el("h2", {}, "Keys"), list(KEYS)));
  }

  return { show, title: () => "Help" };
})();

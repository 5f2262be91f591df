// Light and dark: as the system has it, or as the reader chose. Runs before anything is drawn.
"use strict";

(() => {
  const NAME = "searchrl-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem(NAME) || "auto";
    } catch {
      return "auto"; // a browser that keeps nothing for files
    }
  }

  function show(theme) {
    const isDark = theme === "auto" ? dark.matches : theme === "dark";
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  }

  show(stored());
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = stored();
    dark.addEventListener("change", () => show(choice.value));
    choice.addEventListener("change", () => {
      show(choice.value);
      try {
        localStorage.setItem(NAME, choice.value);
      } catch {
        // It holds until the page is closed.
      }
    });
  });
})();

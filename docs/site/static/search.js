/* The search of the site: pages and functions come before attributes, and results have excerpts, which also work from a folder: there, a
   browser does not let a page read other pages, so that all texts are in a script. */
"use strict";

const squeezed = text => text.toLowerCase().replace(/[^a-z0-9]/g, "");
const asked = squeezed(new URLSearchParams(location.search).get("q") || "");

/* Sphinx reads this variable; higher scores come first. Pages whose title has the words come first, and headings and words that all pages
   of strategies have do not fill the list; pages about the project come after those about its use. */
var Scorer = {
  score: ([page, title, anchor, description, score, , kind]) => {
    if (kind === "object") return /^Python (attribute|property|data)\b/.test(description || "") ? score - 40 : score;
    const place = anchor ? -1 : squeezed(title).indexOf(asked);
    const named = place === 0 ? 20 : place > 0 ? 12 : anchor || /^(strategy|algorithm)\//.test(page) ? -9 : 0;
    return score + named - (/^(changelog|contributing|design|releasing|security|decisions\/)/.test(page) ? 20 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

(() => {
  const LENGTH = 240;
  const results = document.getElementById("search-results");
  if (!results) return;
  const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/)
    .map(word => word.replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "")).filter(Boolean); // of --columns, columns
  const stems = words.map(word => word.slice(0, Math.max(4, word.length - 3))); // words are found with another ending, too

  /* The part of a text that has the most letters of the words, or its beginning: of "how to resume", the one with "resume". */
  function excerpt(text) {
    const lower = text.toLowerCase();
    let at = 0, most = 0;
    for (const stem of stems) for (let place = lower.indexOf(stem), i = 0; place >= 0 && i < 200; place = lower.indexOf(stem, place + 1), i++) {
      const part = lower.slice(place, place + LENGTH / 2);
      const letters = words.reduce((sum, word, i) => sum + (part.includes(word) ? word.length : part.includes(stems[i]) ? stems[i].length - 1 : 0), 0);
      if (letters > most) [at, most] = [place, letters];
    }
    let start = Math.max(0, at - LENGTH / 3);
    if (start > 0) start = text.indexOf(" ", start) + 1;
    const end = start + LENGTH < text.length ? text.lastIndexOf(" ", start + LENGTH) : text.length;
    return `${start > 0 ? "… " : ""}${text.slice(start, end)}${end < text.length ? " …" : ""}`;
  }

  function fill() {
    for (const item of results.querySelectorAll("ul.search > li:not([data-excerpt]):not(.kind-object)")) {
      const link = item.querySelector("a"), page = link && link.getAttribute("href").replace(/\.html.*$/, "");
      const text = (window.searchTexts || {})[page];
      if (!text) continue;
      item.dataset.excerpt = "yes";
      const part = document.createElement("p");
      part.className = "context";
      part.textContent = excerpt(text);
      item.append(part);
    }
  }

  new MutationObserver(fill).observe(results, {childList: true, subtree: true});
  const texts = document.createElement("script");
  texts.src = "search-texts.js";
  texts.onload = fill;
  document.body.append(texts);
})();

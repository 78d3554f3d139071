/* The search of the site: pages and functions come before attributes, and results have excerpts, which also work from a folder: there, a
   browser does not let a page read other pages, so that all texts are in a script. */
"use strict";

const query = new URLSearchParams(location.search).get("q") || "";
const squeezed = text => text.toLowerCase().replace(/[^a-z0-9]/g, "");
const asked = squeezed(query);
const literally = new RegExp("\\b" + (query.match(/[\p{L}\p{N}]+/gu) || ["^\\b$"]).join("[^\\p{L}\\p{N}]+"), "giu"); // any marks between words

/* How much a page is about the words as they were typed: how often they are in its text, relative to its length. If other pages have
   several words together, those that have them apart come later. */
const times = {};
function closeness(page) {
  if (!("all" in times)) {
    for (const [name, text] of Object.entries(window.searchTexts || {})) times[name] = (text.match(literally) || []).length;
    times.all = Object.values(times).some(Boolean);
  }
  if (times[page]) return 3 + Math.min(6, 3 * Math.log2(1 + 1000 * times[page] / window.searchTexts[page].length));
  return times.all && /[^\p{L}\p{N}]/u.test(query.trim()) ? -8 : 0;
}

/* What pages are for: definitions before lessons, both before lists, and pages about the project after those about its use. */
function use(page) {
  if (/^(changelog|contributing|design|releasing|security|decisions\/)/.test(page)) return -20;
  if (/^(how-to|reference|explanation|project|tutorials\/index)$/.test(page)) return -6;
  if (/^(api\/|json|schemas\/|results|gallery)/.test(page)) return -3;
  return page === "glossary" ? 4 : /^tutorials\//.test(page) ? 2 : 0;
}

/* Sphinx sorts results by these scores, the highest first: pages with the words in their title, then pages that have them often. Headings,
   and words that all pages of strategies have, score less, so that they do not fill the list. */
var Scorer = {
  score: ([page, title, anchor, description, score, , kind]) => {
    if (kind === "object") return /^Python (attribute|property|data)\b/.test(description || "") ? score - 40 : score;
    const place = anchor ? -1 : squeezed(title).indexOf(asked);
    const named = place === 0 ? 20 : place > 0 ? 12 : anchor || /^(strategy|algorithm)\//.test(page) ? -9 : 0;
    return score + named + use(page) + (anchor ? 0 : closeness(page));
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

(() => {
  const LENGTH = 240;
  const results = document.getElementById("search-results");
  if (!results) return;
  const words = query.toLowerCase().split(/\s+/)
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
  document.write('<script src="search-texts.js"></script>'); // read before Sphinx searches, which asks for scores once
})();

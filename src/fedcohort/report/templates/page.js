"use strict";
(() => {
const state = {data: {}, charts: {}, config: {}, views: new Map(), hidden: [], problems: []};
window.fedcohort = state;

const NARROW = 520;
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

function read() {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  Object.assign(state, payload);
  for (const [name, columns] of Object.entries(state.data)) {
    const keys = Object.keys(columns), length = keys.length ? columns[keys[0]].length : 0;
    state.data[name] = Array.from({length}, (_, i) => Object.fromEntries(keys.map(key => [key, columns[key][i]])));
  }
}

/* The names of the tables that a chart draws. */
function named(spec, found = new Set()) {
  if (Array.isArray(spec)) spec.forEach(inner => named(inner, found));
  else if (spec && typeof spec === "object") {
    if (spec.data && typeof spec.data.name === "string" && !spec.data.values) found.add(spec.data.name);
    Object.values(spec).forEach(inner => named(inner, found));
  }
  return found;
}

/* Gives every legend as many columns as there is room for. */
function fold(spec, width) {
  if (Array.isArray(spec)) { spec.forEach(inner => fold(inner, width)); return; }
  if (!spec || typeof spec !== "object") return;
  const names = spec.scale && Array.isArray(spec.scale.domain) ? spec.scale.domain : ["0,000"];
  if (spec.legend && spec.legend.columns) {
    const longest = Math.min(20, Math.max(...names.map(name => String(name).length)));
    spec.legend.columns = Math.max(1, Math.min(spec.legend.columns, Math.floor((width - 50) / (30 + 8 * longest))));
  }
  Object.values(spec).forEach(inner => fold(inner, width));
}

async function draw(place) {
  const key = place.dataset.chart, original = state.charts[key];
  const spec = structuredClone(original);
  spec.datasets = spec.datasets || {};
  for (const name of named(spec)) spec.datasets[name] ??= state.data[name] || [];
  spec.config = state.config;
  const width = place.clientWidth || place.closest(".view").clientWidth || 600;
  const has = name => JSON.stringify(spec).includes(`"name":"${name}"`);
  const labelled = has("named");
  if (labelled && width < NARROW) spec.layer = spec.layer.filter(layer => !JSON.stringify(layer).includes("named ?"));
  fold(spec, width);
  spec.padding = {left: 2, top: 8, bottom: 2, right: 6}; // "fit-x" makes room for the names at the ends of lines
  const container = spec.width === "container";
  if (container) spec.autosize = {type: "fit-x", contains: "padding"};
  const before = state.views.get(key);
  const result = await vegaEmbed(place, spec, {mode: "vega-lite", renderer: "svg", actions: false, tooltip: {theme: "custom", formatTooltip: (value, toHtml) => atOnce(key, value) || table(value, toHtml)}, logLevel: 1});
  if (before) before.finalize();
  state.views.set(key, result.view);
  apply(result.view);
  await result.view.runAsync();
}

/* One tooltip with all strategies at the pointer's x: of each, the last point up to there. Charts of lines name their table in "tip". */
function atOnce(key, value) {
  const tip = (state.charts[key].usermeta || {}).tip;
  if (!tip || !value || value[tip.x] === undefined) return "";
  const at = Number(value[tip.x]), words = text => new Option(text).innerHTML, last = new Map();
  for (const row of state.data[tip.table]) {
    if (row.mean === null || state.hidden.includes(row.strategy)) continue;
    const known = last.get(row.strategy) || {};
    if (row.x <= at * (1 + 1e-9)) known.row = row;
    known.end = row.x;
    last.set(row.strategy, known);
  }
  const rows = [...last.values()].filter(known => known.row && known.end >= at * (1 - 1e-9)).map(known => known.row);
  rows.sort((a, b) => b.mean - a.mean);
  if (!rows.length) return "";
  const label = name => { const box = all(".strategies input").find(box => box.value === name); return box && box.parentElement; };
  const swatch = name => label(name) ? label(name).querySelector(".swatch").outerHTML : "";
  const shown = name => label(name) ? label(name).querySelector("span").textContent : name;
  const number = x => written(x, tip.kind);
  const spread = row => row.low === null || row.low === undefined ? "" : ` (${number(row.low)} to ${number(row.high)})`;
  const lines = rows.map(row => `<tr><td class="key">${swatch(row.strategy)}${words(shown(row.strategy))}</td><td class="number">${number(row.mean)}${spread(row)}</td></tr>`);
  const here = state.data[tip.table].find(row => row.x === at && row.x_text);
  return `<p class="at">${words(tip.x)} ${words(here ? here.x_text : written(at, "number"))}</p><p class="what">${words(tip.y)}</p><table><tbody>${lines.join("")}</tbody></table>`;
}

/* A number as Python writes it: a share in percent, or four significant digits. */
function written(x, kind) {
  const text = kind === "percent" ? `${(100 * x).toFixed(1)}%`
    : Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en-US") : String(Number(x.toPrecision(4)));
  return text.replace("-", "−");
}

function table(value, toHtml) {
  if (!value || typeof value !== "object") return toHtml(String(value));
  const rows = Object.entries(value).map(([name, text]) => `<tr><td class="key">${toHtml(name)}</td><td class="value">${toHtml(String(text))}</td></tr>`);
  return `<table><tbody>${rows.join("")}</tbody></table>`;
}

function apply(view) {
  try { view.signal("hidden", state.hidden); } catch { /* this chart has no strategies to hide */ }
}

function pause() {
  return new Promise(done => (window.requestIdleCallback ? requestIdleCallback(done, {timeout: 120}) : setTimeout(done, 0)));
}

let drawing = Promise.resolve();

/* Draws the visible charts one by one, from the top; charts of hidden views and of other points are drawn when they are shown. */
function drawAll(root = document) {
  drawing = drawing.then(async () => {
    for (const place of all(".view:not([hidden]) .chart", root)) {
      if (place.dataset.drawn || place.closest(".away")) continue;
      place.dataset.drawn = "yes";
      try { await draw(place); } catch (error) { state.problems.push(`${place.dataset.chart}: ${error}`); console.error(place.dataset.chart, error); }
      await pause();
    }
  });
  return drawing;
}

function switchView(input) {
  const figure = input.closest("figure");
  all(".view", figure).forEach(view => { view.hidden = view.dataset.view !== input.value; });
  return drawAll(figure);
}

/* The point of a sweep that is shown, as text; "all" for pages without a sweep. */
function point() {
  const chosen = document.querySelector(".points input:checked");
  return chosen ? chosen.value : "all";
}

/* Marks what is hidden: unchecked strategies, and rows at other points of the sweep. */
function mark() {
  const here = point(), away = new Set(), off = new Set();
  for (const box of all(".strategies input")) {
    const label = box.closest("label"), elsewhere = here !== "all" && label.dataset.point !== here;
    label.classList.toggle("away", elsewhere);
    if (elsewhere) away.add(box.value);
    if (!box.checked) off.add(box.value);
  }
  state.hidden = [...new Set([...away, ...off])];
  all("[data-strategy]").forEach(place => {
    place.classList.toggle("away", away.has(place.dataset.strategy));
    place.classList.toggle("off", off.has(place.dataset.strategy));
  });
  all(".answers").forEach(part => { part.hidden = here !== "all" && part.dataset.point !== here; });
}

function hide() {
  mark();
  drawAll();
  for (const view of state.views.values()) { apply(view); view.runAsync(); }
}

/* --- saving ------------------------------------------------------------------------------------------------------------- */

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const drawing_of = place => state.views.get(place.dataset.chart).toSVG();

/* Puts the charts of a view into one drawing, at their places on the page and with their titles: a browser saves one file at a click. */
async function together(places) {
  const frame = places[0].closest(".view").getBoundingClientRect(), parts = [];
  const words = text => new Option(text).innerHTML;
  for (const [i, place] of places.entries()) {
    const title = place.closest(".panel").querySelector(".panel-title"), at = (place.firstElementChild || place).getBoundingClientRect();
    if (title) {
      const box = title.getBoundingClientRect();
      parts.push(`<text x="${box.left - frame.left + box.width / 2}" y="${box.top - frame.top + 13}" text-anchor="middle" font-family="sans-serif" font-size="12" fill="var(--soft)">${words(title.textContent)}</text>`);
    }
    const svg = (await drawing_of(place)).replace(/(id="|url\(#)/g, `$1p${i}-`);
    const left = at.left - frame.left + Math.max(0, (at.width - parseFloat((/ width="([\d.]+)/.exec(svg) || [])[1] || at.width)) / 2);
    parts.push(svg.replace("<svg ", `<svg x="${left}" y="${at.top - frame.top}" `));
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${frame.width}" height="${frame.height}" viewBox="0 0 ${frame.width} ${frame.height}">${parts.join("")}</svg>`;
}

async function save(button) {
  const figure = button.closest("figure"), key = figure.dataset.figure;
  const places = all(".view:not([hidden]) .chart", figure).filter(place => !place.closest(".away"));
  if (button.dataset.save === "svg") {
    const style = getComputedStyle(document.documentElement);
    const name = places.length === 1 ? places[0].dataset.chart : `${key}.${places[0].closest(".view").dataset.view}`;
    const svg = places.length === 1 ? await drawing_of(places[0]) : await together(places);
    const solid = svg.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    download(`${name}.svg`, "image/svg+xml", solid);
    return;
  }
  const quote = value => value === null || value === undefined ? "" : /[",\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : String(value);
  const names = new Set(places.flatMap(place => [...named(state.charts[place.dataset.chart])]));
  for (const name of names) {
    const rows = state.data[name] || [];
    if (/_(ends|key)$/.test(name) || !rows.length) continue; // these tables only tell where to draw
    const columns = Object.keys(rows[0]).filter(column => !column.endsWith("_text")); // numbers only, not their texts
    download(`${key}-${name}.csv`, "text/csv", [columns.join(","), ...rows.map(row => columns.map(c => quote(row[c])).join(","))].join("\n"));
  }
}

/* --- widths ---------------------------------------------------------------------------------------------------------------- */

let lastWidth = document.documentElement.clientWidth, waiting;
function resized() {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const width = document.documentElement.clientWidth;
    if (width === lastWidth) return;
    lastWidth = width;
    all(".chart").forEach(place => delete place.dataset.drawn);
    drawAll();
  }, 200);
}

/* --- live: ask for news, and replace the old page by the new one ----------------------------------------------------------- */

async function follow() {
  const status = document.getElementById("status");
  let wait = 2000;
  for (;;) {
    await new Promise(done => setTimeout(done, wait));
    if (document.hidden) continue;
    try {
      const news = await fetch(`/state${location.search}`, {cache: "no-store"});
      if (!news.ok) throw new Error(news.status);
      const version = (await news.json()).version;
      const here = document.getElementById("status");
      here.textContent = "Connected. This page follows the runs.";
      here.classList.remove("lost");
      wait = 2000;
      if (version !== document.body.dataset.live) await renew();
    } catch (error) {
      const here = document.getElementById("status") || status;
      here.textContent = error.message === "403"
        ? "The server has been started again with another address. The page shows the last data that it received; open the new address."
        : "No connection to the server. The page shows the last data that it received, and continues by itself when the server is back.";
      here.classList.add("lost");
      wait = Math.min(wait * 1.5, 10000);
    }
  }
}

async function renew() {
  const answer = await fetch(location.href, {cache: "no-store"});
  if (!answer.ok) throw new Error(answer.status);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const chosen = all(".switch input:checked").map(input => [input.name, input.value]);
  const open = all("details").map(part => part.open);
  const unchecked = all(".strategies input").filter(box => !box.checked).map(box => box.value), here = point();
  const before = new Map(all(".chart").map(place => [place.dataset.chart, place]));
  const old = {data: state.data, charts: state.charts};
  document.getElementById("payload").textContent = fresh.getElementById("payload").textContent;
  read();
  for (const name of ["header.top", ".strategies", "main"]) {
    const here = document.querySelector(name), there = fresh.querySelector(name);
    if (here && there) here.replaceWith(document.adoptNode(there));
    else if (there) document.querySelector("main").before(document.adoptNode(there));
  }
  chosen.filter(([name]) => name !== "point").forEach(([name, value]) => {
    const input = document.querySelector(`input[name="${CSS.escape(name)}"][value="${CSS.escape(value)}"]`);
    if (!input) return;
    input.checked = true;
    all(".view", input.closest("figure")).forEach(view => { view.hidden = view.dataset.view !== value; });
  });
  all("details").forEach((part, i) => { if (open[i] !== undefined) part.open = open[i]; });
  all(".strategies input").forEach(box => { box.checked = !unchecked.includes(box.value); });
  const radio = document.querySelector(`.points input[value="${CSS.escape(here)}"]`);
  if (radio) radio.checked = true;
  mark();
  for (const place of all(".chart")) {
    const was = before.get(place.dataset.chart), key = place.dataset.chart;
    if (!was || !was.firstChild) continue;
    place.style.minHeight = `${was.clientHeight}px`;
    const same = JSON.stringify(old.charts[key]) === JSON.stringify(state.charts[key]) &&
      [...named(state.charts[key])].every(name => JSON.stringify(old.data[name]) === JSON.stringify(state.data[name]));
    if (same) { place.replaceWith(was); continue; }
    place.append(...was.childNodes);
  }
  document.body.dataset.live = fresh.body.dataset.live;
  await drawAll();
}

/* --- start ------------------------------------------------------------------------------------------------------------------ */

document.addEventListener("change", event => {
  if (event.target.matches(".points input")) hide();
  else if (event.target.matches(".switch input")) switchView(event.target);
  if (event.target.matches(".strategies input")) hide();
});
document.addEventListener("click", event => {
  const button = event.target.closest("[data-save]");
  if (button) save(button);
});
window.addEventListener("resize", resized);
read();
mark();
state.ready = drawAll();
state.drawAll = drawAll;
if (document.body.dataset.live !== undefined) follow();
})();

"use strict";
(() => {
const state = {data: {}, charts: {}, config: {}, clients: {}, views: new Map(), hidden: [], away: [], dimmed: [], problems: [], sheet: 1200}; // sheet: height of a chart that fits one with its title and caption
window.fedcohort = state;

const NARROW = 520;
const SHEET = 760; // narrower windows have figures below each other only, and a sheet is about as wide
const LOWER = 0.8, TALL = 200; // charts of this height or more are lower on paper, so that another figure fits a sheet
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

function read() {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  Object.assign(state, payload);
  for (const [name, columns] of Object.entries(state.data)) {
    const keys = Object.keys(columns), length = keys.length ? columns[keys[0]].length : 0;
    state.data[name] = Array.from({length}, (_, i) => Object.fromEntries(keys.map(key => [key, columns[key][i]])));
  }
}

/* The specification of a chart: charts of another seed can be the same as those of the first one. */
function chartOf(key) {
  const chart = state.charts[key];
  return typeof chart === "string" ? state.charts[chart] : chart;
}

/* The rows of a table of a chart; charts of another seed have tables of their own, whose names end in the seed. */
function tableOf(key, name) {
  const seed = (/@([^.]*)\./.exec(key) || [])[1];
  return (seed !== undefined && state.data[`${name}@${seed}`]) || state.data[name] || [];
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

/* Gives every legend as many columns as there is room for; with "follows", also while the window becomes narrower: charts follow it at
   once, but are drawn again only later. */
function fold(spec, width, follows = true) {
  if (Array.isArray(spec)) { spec.forEach(inner => fold(inner, width, follows)); return; }
  if (!spec || typeof spec !== "object") return;
  const names = spec.scale && Array.isArray(spec.scale.domain) ? spec.scale.domain : ["0,000"];
  if (spec.legend && spec.legend.orient === "right" && width < NARROW) Object.assign(spec.legend, {orient: "bottom", columns: 2});
  if (spec.legend && spec.legend.columns) {
    const longest = Math.min(20, Math.max(...names.map(name => String(name).length))), each = 30 + 8 * longest;
    const columns = Math.max(1, Math.min(spec.legend.columns, Math.floor((width - 50) / each)));
    const now = `max(1, min(${columns}, floor((0 * width + containerSize()[0] - 50) / ${each})))`;
    spec.legend.columns = follows && columns > 1 ? {expr: now} : columns;
  }
  Object.values(spec).forEach(inner => fold(inner, width, follows));
}

/* Shortens the names of strategies on axes and beside points, for which phones have no room. */
function shortenNames(spec) {
  const narrow = label => ((state.names || {})[label] || {}).narrow;
  encodings(spec, "y", y => {
    if (!y.axis || !(y.axis.labelLimit > 130)) return;
    const found = Object.fromEntries((y.sort || []).filter(narrow).map(label => [label, narrow(label)]));
    if (Object.keys(found).length) y.axis = {...y.axis, labelLimit: 190, labelExpr: `${JSON.stringify(found)}[datum.label] || datum.label`};
  });
  let named = false;
  encodings(spec, "y", y => { named ||= Boolean(y.axis && y.axis.labelLimit === 190); });
  if (named) encodings(spec, "x", x => { if (x.axis) x.axis = {...x.axis, titleAnchor: "end"}; }); // a title in the middle leaves the chart
  for (const [table, rows] of Object.entries(spec.datasets)) {
    if (table.startsWith("tradeoff_")) spec.datasets[table] = rows.map(row => ({...row, name: narrow(row.strategy) || row.name}));
  }
}

/* Gives the shortened names in a chart their whole names, which the browser shows at the pointer. */
function tellNames(place) {
  const whole = new Map();
  for (const {name, shown, narrow} of Object.values(state.names || {})) for (const cut of [shown, narrow]) if (cut !== name) whole.set(cut, name);
  for (const text of all("svg text", place)) {
    const name = whole.get(text.textContent.replace(/ [↑↓×]$/, ""));
    if (!name) continue;
    text.dataset.whole = name;
    text.style.pointerEvents = "auto"; // axes and legends have none of their own
  }
}

/* --- room for charts that are not drawn yet: the page's style has that of a chart with an axis below it -------------------------- */

/* About the height of what stands above and below that: legends, a second axis, and the names of lines on phones. */
function roomBeside(key, width) {
  const spec = structuredClone(chartOf(key)), legends = new Map();
  let room = 0;
  fold(spec, width, false);
  for (const channel of ["color", "fill", "shape", "strokeDash", "opacity", "size"]) encodings(spec, channel, part => {
    if (part.field === undefined || part.legend === null || (part.legend || {}).orient === "right") return;
    const legend = part.legend || {}, entries = (legend.values || (part.scale || {}).domain || []).length;
    const rows = part.type === "quantitative" ? 1 : Math.ceil(entries / (legend.columns || 3));
    legends.set(part.field, 18 + 14 * Math.max(1, rows) + (legend.title === null || part.title === null ? 0 : 17));
  });
  for (const height of legends.values()) room += height;
  let above = false;
  encodings(spec, "x", x => { above = above || Boolean(x.axis && x.axis.orient === "top"); });
  const ends = width < NARROW ? [...named(spec)].find(name => name.endsWith("_ends")) : undefined;
  return room + (above ? 44 : 0) + (ends ? roomOfNames(tableOf(key, ends), width) : 0);
}

/* About the height of a list of names below a chart. */
function roomOfNames(ends, width) {
  let rows = 1, used = 0;
  for (const {strategy} of byEnds(ends)) {
    const shown = partOf(strategy) && !state.away.includes(strategy) ? partOf(strategy).querySelector(".light").textContent : "";
    if (!shown) continue;
    const wide = 52 + 7.5 * shown.length;
    if (used && used + wide - 14 > width) { rows += 1; used = 0; }
    used += wide;
  }
  return 4 + 24 * rows;
}

/* Keeps room for all charts of the page before the first one is drawn, so that sections do not move. */
function reserve() {
  for (const place of all(".view:not([hidden]) .chart")) {
    const own = parseFloat(place.style.minHeight);
    if (own && !place.dataset.drawn && chartOf(place.dataset.chart)) place.style.minHeight = `${own + roomBeside(place.dataset.chart, place.clientWidth)}px`;
  }
}

async function draw(place) {
  const key = place.dataset.chart;
  const spec = structuredClone(chartOf(key));
  spec.datasets = spec.datasets || {};
  for (const name of named(spec)) spec.datasets[name] ??= tableOf(key, name);
  reorder(spec, place);
  toLog(spec);
  spec.config = state.config;
  const width = place.clientWidth || place.closest(".view").clientWidth || 600;
  const has = name => JSON.stringify(spec).includes(`"name":"${name}"`);
  const labelled = has("named");
  const listed = labelled && width < NARROW ? [...named(spec)].filter(name => name.endsWith("_ends")) : [];
  if (listed.length) spec.layer = spec.layer.filter(layer => !JSON.stringify(layer).includes("named ?"));
  fold(spec, width);
  if (width < NARROW && spec.layer) spec.layer = spec.layer.filter(layer => !(layer.mark && layer.mark.type === "text" && JSON.stringify(layer.data || {}).includes("class_counts")));
  if (width < NARROW) for (const [name, rows] of Object.entries(spec.datasets)) spec.datasets[name] = rows.map(row => row.narrow ? {...row, name: row.narrow} : row);
  if (width < 420) shortenNames(spec);
  spec.padding = {left: 2, top: 8, bottom: 2, right: 6}; // "fit-x" makes room for the names at the ends of lines
  if (hurried && isTall(place)) spec.height *= LOWER;
  const container = spec.width === "container";
  if (container) spec.autosize = {type: "fit-x", contains: "padding"};
  const before = viewsOf(key), parts = onSheets(spec);
  const drawn = parts.length > 1 ? parts.map(() => { const part = document.createElement("div"); part.className = "on-sheet"; return part; }) : [place];
  if (parts.length > 1) place.replaceChildren(...drawn);
  const made = [];
  const show = async (i, part) => (await vegaEmbed(drawn[i], part, {mode: "vega-lite", renderer: "svg", actions: false, patch: dimmable, tooltip: {theme: "custom", formatTooltip: (value, toHtml) => atOnce(key, value) || table(value, toHtml)}, logLevel: 1})).view;
  for (const [i, part] of parts.entries()) made.push(await show(i, part));
  const room = Math.max(...made.map(view => view.origin()[0]));
  for (const [i, part] of parts.entries()) if (made[i].origin()[0] < room) { // equal values stand below each other in all parts
    encodings(part, "y", y => { if (y.field === "strategy" && y.axis) y.axis.minExtent = room; });
    made[i].finalize();
    made[i] = await show(i, part);
  }
  for (const [name, view] of before) { view.finalize(); state.views.delete(name); }
  for (const [i, view] of made.entries()) {
    state.views.set(i ? `${key} ${i}` : key, view);
    apply(view);
    await view.runAsync();
  }
  tellNames(place);
  if (listed.length) listNames(place, tableOf(key, listed[0]));
}

/* The drawings of a chart by their names: one, or on paper one for each part. */
const viewsOf = key => [...state.views].filter(([name]) => name === key || name.startsWith(`${key} `));

/* --- parts of long charts on paper -------------------------------------------------------------------------------------------- */

/* The strategies that have a row of their own in a chart, in their order. */
function rowsOf(spec) {
  let labels = [];
  encodings(spec, "y", y => { if (y.field === "strategy" && Array.isArray(y.sort)) labels = y.sort; });
  return labels.filter(label => !state.hidden.includes(label));
}

const isLong = spec => spec !== undefined && spec.height > state.sheet && rowsOf(spec).length > 1;

/* On paper, a chart that is longer than a sheet in parts with the same axes: on one sheet, its names could not be read. Parts are so short
   that they fill the rest of a sheet. */
function onSheets(spec) {
  if (!hurried || !isLong(spec)) return [spec];
  const labels = rowsOf(spec), each = Math.ceil(labels.length / Math.ceil(spec.height / (0.6 * state.sheet)));
  encodings(spec, "x", x => { // axes of stacked bars end at the longest bar, of all parts
    if (x.stack !== "zero" || (x.scale || {}).domain) return;
    const totals = new Map(labels.map(label => [label, 0]));
    for (const row of spec.datasets[spec.data.name]) if (totals.has(row.strategy)) totals.set(row.strategy, totals.get(row.strategy) + row[x.field]);
    x.scale = {...x.scale, domain: [0, Math.max(...totals.values())]};
  });
  return Array.from({length: Math.ceil(labels.length / each)}, (_, i) => {
    const part = structuredClone(spec), own = labels.slice(i * each, (i + 1) * each);
    part.height = spec.height * own.length / labels.length;
    encodings(part, "y", y => { if (y.field === "strategy" && Array.isArray(y.sort)) y.sort = own; });
    for (const [name, rows] of Object.entries(part.datasets)) part.datasets[name] = rows.filter(row => row.strategy === undefined || own.includes(row.strategy));
    return part;
  });
}

/* The part of the list of strategies that belongs to a row. */
const partOf = label => { const box = all(".strategies input").find(box => box.value === label); return box && box.closest(".strategy"); };

/* Names of lines in the order of their ends, the highest first; of lines that end at different places, whose ends cannot be compared, in
   the order of the table. */
const byEnds = ends => ends.some(({early}) => early) ? [...ends].sort((a, b) => listedAt(a) - listedAt(b)) : [...ends].sort((a, b) => b.y - a.y);
const listedAt = ({strategy}) => all(".strategies input").findIndex(box => box.value === strategy);

/* Lists the names of lines below a chart that has no room for them at their ends. */
function listNames(place, ends) {
  const list = document.createElement("p"), off = new Set(all(".strategies input:not(:checked)").map(box => box.value));
  list.className = "names";
  const isLog = Boolean(document.querySelector('.controls input[name="log"]:checked'));
  for (const signed of byEnds(ends)) {
    const {strategy} = signed, part = partOf(strategy);
    if (!part) continue;
    const item = document.createElement("span"), button = part.querySelector(".light").cloneNode(true);
    item.dataset.strategy = strategy;
    item.classList.toggle("away", state.away.includes(strategy));
    item.classList.toggle("off", off.has(strategy));
    item.append(part.querySelector(".swatch").cloneNode(true), button, (/ [↑↓×]$/.exec(isLog && signed.name_log || signed.name) || [""])[0]);
    list.append(item);
  }
  place.append(list);
}

/* One tooltip with the strategies at the pointer's x, as many as the window holds: of each, the last point up to there. Charts of lines
   name their table in "tip". */
function atOnce(key, value) {
  const tip = (chartOf(key).usermeta || {}).tip;
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
  const swatch = name => partOf(name) ? partOf(name).querySelector(".swatch").outerHTML : "";
  const shown = name => partOf(name) ? partOf(name).querySelector(".light").textContent : name;
  const number = x => written(x, tip.kind);
  const spread = row => row.low === null || row.low === undefined ? "" : ` (${number(row.low)} to ${number(row.high)})`;
  const room = Math.max(2, Math.floor(window.innerHeight / 64)), chosen = row => partOf(row.strategy) && partOf(row.strategy).querySelector(".light").dataset.name === lit;
  const fitting = rows.length > room ? rows.filter((row, i) => i < room - 1 || chosen(row)) : rows, more = rows.length - fitting.length;
  const lines = fitting.map(row => `<tr><td class="key">${swatch(row.strategy)}${words(shown(row.strategy))}</td><td class="number">${number(row.mean)}${spread(row)}</td></tr>`);
  const here = state.data[tip.table].find(row => row.x === at && row.x_text);
  return `<p class="at">${words(tip.x)} ${words(here ? here.x_text : written(at, "number"))}</p><p class="what">${words(tip.y)}${fitting.some(spread) ? " (± one standard deviation)" : ""}</p><table><tbody>${lines.join("")}</tbody></table>${more ? `<p class="what">and ${more} more</p>` : ""}`;
}

/* A number as Python writes it: a share in percent, or four significant digits, from 1e21 on with an exponent. */
function written(x, kind) {
  const text = kind === "percent" ? `${(100 * x).toFixed(1)}%`
    : Math.abs(x) >= 1000 && Math.abs(x) < 1e21 ? Math.round(x).toLocaleString("en-US") : String(Number(x.toPrecision(4)));
  return text.replace("-", "−");
}

function table(value, toHtml) {
  if (!value || typeof value !== "object") return toHtml(String(value));
  const whole = (name, text) => name === "strategy" && (state.names || {})[text] ? state.names[text].name : String(text);
  const rows = Object.entries(value).map(([name, text]) => `<tr><td class="key">${toHtml(name)}</td><td class="value">${toHtml(whole(name, text))}</td></tr>`);
  return `<table><tbody>${rows.join("")}</tbody></table>`;
}

function apply(view) {
  try { view.signal("hidden", state.hidden); } catch { /* this chart has no strategies to hide */ }
  try { view.signal("away", state.away); } catch { /* this chart has no marks of a whole point */ }
  try { view.signal("dimmed", state.dimmed); } catch { /* this chart has no marks of strategies */ }
}

/* --- highlighting: marks of the other strategies become pale ----------------------------------------------------------------- */

const PALE = "indexof(dimmed, datum.strategy) >= 0 ? (length(dimmed) > 12 ? 0.12 : 0.18) : 1"; // many pale lines together are dark
const LIT = "length(dimmed) > 0 && indexof(dimmed, datum.strategy) < 0";

function dimmable(spec) {
  spec.signals = [...(spec.signals || []), {name: "dimmed", value: state.dimmed}];
  const pale = rule => rule.signal !== undefined ? {...rule, signal: `(${rule.signal}) * (${PALE})`}
    : rule.value !== undefined ? {...rule, value: undefined, signal: `${rule.value} * (${PALE})`} : rule;
  (function walk(marks) {
    for (const mark of marks || []) {
      walk(mark.marks);
      const facet = mark.from && mark.from.facet;
      if (mark.type === "group" && facet && [].concat(facet.groupby || []).includes("strategy")) {
        mark.encode = {...mark.encode, update: {...(mark.encode || {}).update, zindex: {signal: `${LIT} ? 1 : 0`}}};
      }
      const update = mark.encode && mark.encode.update;
      if (!update || mark.type === "group" || mark.role === "legend") continue;
      if (mark.type === "line") update.strokeWidth = {signal: `${(update.strokeWidth || {}).value || 2} * (${LIT} ? 1.75 : 1)`};
      const own = update.opacity;
      update.opacity = own === undefined ? {signal: PALE} : Array.isArray(own) ? own.map(pale) : pale(own);
    }
  })(spec.marks);
  return spec;
}

/* --- order of clients --------------------------------------------------------------------------------------------------------- */

/* What is known about the clients of a chart, and how often its row selected them, if it is a chart of one row. */
function clientsOf(place) {
  const figure = place.closest("figure"), panel = place.closest("[data-strategy]"), federation = (state.federations || [])[point()];
  const other = place.closest("[data-own-seed]"), seed = other ? other.dataset.ownSeed : figure.dataset.seed;
  const known = state.clients[federation ? `${seed}~${federation}` : seed];
  return {known, own: known && panel ? known.times[panel.dataset.strategy] : undefined};
}

/* The clients of a chart in the chosen order; null if the chart keeps its own. */
function ordered(place, clients) {
  const by = value("order"), {known, own} = clientsOf(place);
  if (by === "own" || !known) return null;
  const times = own || known.selected;
  const key = {number: i => [i], size: i => [-known.size[i], i], class: i => [known.class[i], -known.share[i], i], times: i => [-times[i], i]}[by];
  if (!key) return null;
  const keys = new Map(clients.map(client => [client, key(known.place[client])]));
  const compare = (a, b) => { for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i]; return 0; };
  return [...clients].sort((a, b) => compare(keys.get(a), keys.get(b)));
}

const ORDERS = {number: "by number", size: "largest first", class: "by largest class", times: "most often selected first"};

/* The title of an axis of clients in the chosen order: charts of all rows count what all of them selected, also hidden ones. */
function titleOfOrder(place) {
  const by = value("order"), {known, own} = clientsOf(place), title = `client, ${ORDERS[by]}`;
  return by === "times" && !own && Object.keys(known.times).length > 1 ? [`${title},`, "by all strategies together"] : title;
}

/* Puts the clients of a chart in the chosen order: names on an axis, or rows of cells that the payload places by number. */
function reorder(spec, place) {
  const down = (spec.usermeta || {}).clients;
  if (down) {
    const order = ordered(place, Array.from({length: down}, (_, i) => i));
    if (!order) return;
    const position = new Map(order.map((client, i) => [client, i]));
    for (const name of Object.keys(spec.datasets)) {
      spec.datasets[name] = spec.datasets[name].map(row => row.client === undefined ? row : {...row, y: position.get(row.client) - 0.5, y2: position.get(row.client) + 0.5, at: position.get(row.client)});
    }
    const called = spec.usermeta.names || [], names = JSON.stringify(order.map(client => called[client] || client));
    encodings(spec, "y", y => { if (y.field !== undefined) { y.title = titleOfOrder(place); y.axis = {...y.axis, labelExpr: `${names}[datum.value]`}; } });
    return;
  }
  encodings(spec, "x", x => {
    if (x.field !== "client") return;
    const clients = Array.isArray(x.sort) ? x.sort : [...new Set(Object.values(spec.datasets).flat().map(row => row.client).filter(client => client != null))];
    const order = ordered(place, clients);
    if (!order) return;
    const step = Math.max(1, Math.ceil(order.length / 30));
    x.sort = order;
    x.title = titleOfOrder(place);
    if (x.axis && x.axis.values) x.axis = {...x.axis, values: order.filter((_, i) => i % step === 0)};
  });
}

/* Calls a function with every encoding of a channel. */
function encodings(spec, channel, change) {
  if (Array.isArray(spec)) { spec.forEach(inner => encodings(inner, channel, change)); return; }
  if (!spec || typeof spec !== "object") return;
  if (spec.encoding && spec.encoding[channel]) change(spec.encoding[channel]);
  for (const inner of ["layer", "spec", "concat"]) encodings(spec[inner], channel, change);
}

/* --- logarithmic axes --------------------------------------------------------------------------------------------------------- */

/* Ticks of a logarithmic axis: at equal steps of decades, or at 1, 2 and 5 or 1 and 3 times powers of ten. */
function logTicks([low, high]) {
  const decades = Math.log10(high / low), inside = decades < 1.7 ? [1, 2, 5] : decades < 3.2 ? [1, 3] : [1];
  const step = [1, 2, 5, 10, 20, 50, 100].find(step => decades / step <= 7) || 100, ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (power % step === 0) ticks.push(...inside.map(times => Number(`${times}e${power}`)));
  }
  return ticks.filter(tick => low <= tick && tick <= high);
}

/* Makes the axes that allow it logarithmic, if the reader wants that. Names at the ends of lines have other places there. */
function toLog(spec) {
  const log = (spec.usermeta || {}).log;
  if (!log || !document.querySelector('.controls input[name="log"]:checked')) return;
  if (log.y) encodings(spec, "text", part => { if (part.field === "name") part.field = "name_log"; });
  for (const [channel, domain] of Object.entries(log)) {
    encodings(spec, channel, part => {
      if (part.value !== undefined || part.datum !== undefined) return;
      part.scale = {...part.scale, type: "log", domain, nice: false, zero: undefined, clamp: channel === "y"};
      part.axis = {...part.axis, values: logTicks(domain), labelOverlap: true};
      if (part.title) part.title = `${String(part.title)} (log)`;
      if (part.field === "at") part.field = "at_log"; // rows with the same cost side by side
      if (part.field === "edge") part.field = "edge_log"; // where a line leaves the chart
      if (part.field === "y" || part.field === "end") part.field += "_log";
    });
  }
  if (log.y) encodings(spec, "y2", part => { if (part.field === "y") part.field = "y_log"; });
  if (log.x) encodings(spec, "x2", part => { if (part.field === "at") part.field = "at_log"; });
  for (const {transform} of spec.layer || []) for (const step of transform || []) {
    if (typeof step.filter !== "string") continue;
    step.filter = step.filter.replace("datum.log == 0", "datum.log == 1"); // other places of names
    if (log.y) step.filter = step.filter.replace(/datum\.moved\b/, "datum.moved_log");
  }
}

/* Lets the browser do other things between two charts; not while it waits for all of them to print the page. */
let hurried = false, goOn = () => {};
function pause() {
  return new Promise(done => {
    goOn = done;
    if (hurried) done();
    else if (window.requestIdleCallback) requestIdleCallback(done, {timeout: 120});
    else setTimeout(done, 0);
  });
}

/* Draws all charts before the page is printed: the browser first finishes the promises that this leaves behind, and no chart waits for
   anything else. Charts of a phone are drawn again, as wide as on a large screen: a sheet has more room. */
function hurry() {
  if (!hurried && document.documentElement.clientWidth < SHEET) {
    document.documentElement.classList.add("sheet-wide");
    all(".chart").forEach(place => delete place.dataset.drawn);
  }
  if (!hurried) all("details.how").forEach(part => { part.dataset.closed = part.open ? "" : "yes"; part.open = true; });
  if (!hurried) otherOnPaper().forEach(place => delete place.dataset.drawn);
  document.documentElement.classList.add("printing");
  hurried = true;
  goOn();
  drawAll();
}

/* The charts that are drawn in another way on paper. */
const otherOnPaper = () => all(".chart").filter(place => place.closest(".part-of") || isLong(chartOf(place.dataset.chart)) || isTall(place));

/* Whether a chart is lower on paper: the only one of a figure that fills the width of the page, without a row for each strategy, class or
   client. */
function isTall(place) {
  const spec = chartOf(place.dataset.chart);
  let rows = Boolean(spec && (spec.usermeta || {}).clients);
  encodings(spec, "y", y => { rows ||= y.type === "nominal"; });
  return Boolean(spec) && Boolean(place.closest("figure.wide")) && !place.closest(".panels") && spec.height >= TALL && !rows;
}

/* Goes back to the screen after the page was printed. */
function printed() {
  if (hurried) all("details.how").forEach(part => { if (part.dataset.closed) part.open = false; });
  if (hurried) otherOnPaper().forEach(place => delete place.dataset.drawn);
  document.documentElement.classList.remove("printing");
  hurried = false;
  if (!document.documentElement.classList.contains("sheet-wide")) { drawAll(); return; }
  document.documentElement.classList.remove("sheet-wide");
  redraw();
}

let drawing = Promise.resolve();

/* Draws the visible charts one by one, from the top; charts of hidden views and of other points are drawn when they are shown. */
function drawAll(root = document) {
  drawing = drawing.then(async () => {
    for (const place of all(".view:not([hidden]) .chart", root)) {
      if (place.dataset.drawn || place.closest(".away")) continue;
      place.dataset.drawn = "yes";
      try { await draw(place); place.dataset.drawn = "done"; place.style.minHeight = ""; } catch (error) { state.problems.push(`${place.dataset.chart}: ${error}`); console.error(place.dataset.chart, error); }
      await pause();
    }
  });
  return drawing;
}

function switchView(input) {
  const figure = input.closest("figure");
  all("[data-view]", figure).forEach(view => { view.hidden = view.dataset.view !== input.value; });
  return drawAll(figure);
}

/* The point of a sweep that is shown, as text; "all" for pages without a sweep. */
function point() {
  const chosen = document.querySelector(".points input:checked");
  return chosen ? chosen.value : "all";
}

/* The value of a control above the charts; "" if the page has no such control. */
function value(name) {
  const chosen = document.querySelector(`.controls [name="${name}"]:checked, .controls select[name="${name}"]`);
  return chosen ? chosen.value : "";
}

/* The name of the highlighted strategy; "" if there is none. It is the same at all points of a sweep. */
let lit = "";

/* Marks what is hidden: unchecked strategies, rows at other points of the sweep, figures of other seeds; and what is highlighted. */
function mark() {
  const here = point(), away = new Set(), off = new Set(), dimmed = new Set(), seed = value("seed");
  for (const box of all(".strategies input")) {
    const part = box.closest(".strategy"), elsewhere = here !== "all" && part.dataset.point !== here;
    const button = part.querySelector(".light"), own = button.dataset.name === lit;
    part.classList.toggle("away", elsewhere);
    part.classList.toggle("dim", lit !== "" && !own);
    button.setAttribute("aria-pressed", String(own));
    if (elsewhere) away.add(box.value);
    if (!box.checked) off.add(box.value);
    if (lit && !own) [box.value, button.textContent, button.dataset.name].forEach(name => dimmed.add(name));
  }
  state.away = [...away];
  state.hidden = [...new Set([...away, ...off])];
  state.dimmed = [...dimmed].filter(name => name !== lit);
  all("[data-strategy]").forEach(place => {
    place.classList.toggle("away", away.has(place.dataset.strategy));
    place.classList.toggle("off", off.has(place.dataset.strategy));
    place.classList.toggle("dim", dimmed.has(place.dataset.strategy));
  });
  all(".names .light").forEach(button => button.setAttribute("aria-pressed", String(button.dataset.name === lit)));
  all(".answers, .of-point").forEach(part => { part.hidden = here !== "all" && part.dataset.point !== here; });
  sayHidden(off, away);
  all("figure[data-seed], figure[data-points]").forEach(figure => {
    const points = figure.dataset.points && here !== "all" ? figure.dataset.points.split(" ") : [here];
    figure.classList.toggle("away", (seed !== "" && figure.dataset.seed !== seed) || !points.includes(here));
  });
  all(".goes-on").forEach(said => {
    const box = said.previousElementSibling, lines = box.querySelectorAll("tbody tr:not(.away)").length;
    said.textContent = `The table has ${lines} lines; scroll it to see all of them.`;
    said.hidden = box.scrollHeight <= box.clientHeight + 1;
  });
  all(".part-of").forEach(part => part.classList.toggle("bare", !part.querySelector("figure:not(.away)")));
  measureBar();
  fillSheets();
}

/* Says below the answers that they are about all rows, if the reader has hidden some of those that are shown at this point. */
function sayHidden(off, away) {
  const said = document.querySelector(".about-hidden"), rows = all(".strategies input").filter(box => !away.has(box.value)).length;
  if (!said) return;
  const hidden = [...off].filter(label => !away.has(label)).length;
  const text = hidden ? `${hidden} of ${rows} rows ${hidden === 1 ? "is" : "are"} hidden in charts. The answers above, and the verdicts and marks in tables, are about all rows.` : "";
  if (said.textContent !== text) said.textContent = text;
}

function hide() {
  mark();
  for (const view of state.views.values()) { apply(view); view.runAsync(); }
  remember();
  return drawAll();
}

function highlight(name) {
  lit = lit === name ? "" : name;
  hide();
}

/* Draws charts again, in which an axis or the order of clients changed. */
function redraw() {
  all(".chart").forEach(place => delete place.dataset.drawn);
  remember();
  return drawAll();
}

/* --- tables: sorting, and columns to choose ----------------------------------------------------------------------------------- */

const TABLES = /^(results|fairness|ledger|classes|wall|clients-)/;

/* Makes headings buttons that sort, and adds a list of columns. */
function equip(root = document) {
  for (const table of all("table[id]", root)) {
    if (!TABLES.test(table.id) || table.dataset.equipped) continue;
    table.dataset.equipped = "yes";
    const heads = all("thead th", table);
    all("tbody tr", table).forEach((row, i) => { row.dataset.position = i; });
    heads.forEach((head, i) => {
      const button = document.createElement("span"); // browsers leave <button>s out of the heads that they repeat on printed pages
      Object.assign(button, {role: "button", tabIndex: 0, className: "sort"});
      button.append(...head.childNodes);
      head.append(button);
      const act = () => { turn(table, i); remember(); };
      button.addEventListener("click", act);
      button.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });
    });
    if (heads.length < 5 || table.closest(".sheet")) continue;
    const list = document.createElement("details");
    list.className = "columns";
    list.innerHTML = "<summary>Columns</summary>";
    heads.slice(1).forEach((head, i) => {
      const label = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.addEventListener("change", () => { columns(table); remember(); });
      label.append(box, ` ${head.textContent.replace(/\s+/g, " ").trim()}`);
      list.append(label);
    });
    table.closest(".scroll").before(list);
  }
}

const listOf = table => { if (table.closest(".sheet")) return null; const before = table.closest(".scroll").previousElementSibling; return before && before.matches("details.columns") ? before : null; };

/* Hides the columns of a table that are not checked. */
function columns(table) {
  const list = listOf(table);
  if (!list) return;
  const shown = all("input", list).map(box => box.checked);
  for (const row of all("tr", table)) [...row.children].forEach((cell, i) => { cell.hidden = i > 0 && !shown[i - 1]; });
}

/* The text of a number with its column's decimals, after the attributes of its cell; from 1,000 on it has none, and room for them
   keeps its digits below those of the others. Numbers with an exponent are too long for that. */
function aligned(x, digits) {
  if (x === null || x === undefined) return ">–";
  const whole = Math.abs(x) >= 1000, huge = Math.abs(x) >= 1e12;
  const places = {minimumFractionDigits: whole ? 0 : digits, maximumFractionDigits: whole ? 0 : digits};
  const text = huge ? Number(x.toPrecision(4)).toExponential() : Number(x).toLocaleString("en-US", places);
  return `${whole && digits && !huge ? ` data-room=".${"0".repeat(digits)}"` : ""}>${text.replace(/-/g, "−")}`;
}

/* --- the focus of the keyboard -------------------------------------------------------------------------------------------------- */

/* What tells a control from the others of the page: the part it is in, and its own name; of a heading of a table, that of its column. */
function nameOfControl(control) {
  const around = control.parentElement.closest("[id]"), head = control.closest("thead th"), {href, name, value, dataset} = control;
  const own = head ? namesOfColumns(head.closest("table"))[head.cellIndex] : control.matches("summary") ? nameOf(control.parentElement) : "";
  return JSON.stringify([around ? around.id : "", control.tagName, href, name, control.matches("select") ? "" : value, dataset.name, dataset.save, own]);
}

const controls = () => all("a[href], button, input, select, summary, [tabindex]");

/* Notes which control has the focus, and returns a function that gives the focus to the one that has taken its place. */
function noteFocus() {
  const focused = document.activeElement;
  if (!focused || focused === document.body) return () => {};
  const name = nameOfControl(focused), place = controls().filter(control => nameOfControl(control) === name).indexOf(focused);
  return () => {
    if (focused.isConnected) return;
    const same = controls().filter(control => nameOfControl(control) === name);
    if (same.length) same[Math.max(0, Math.min(place, same.length - 1))].focus({preventScroll: true});
  };
}

/* Tells the style how high the bar above the charts is that stays in the window: a control that gets the focus scrolls below it. */
function measureBar() {
  const bar = document.querySelector(".bar"), stays = bar && getComputedStyle(bar).position === "sticky";
  document.documentElement.style.setProperty("--bar", `${stays ? bar.offsetHeight : 0}px`);
}

/* Fills the tables of single clients: one strategy at a time, the highlighted one or the one that the reader chooses. */
function fillSheets() {
  const giveBack = noteFocus();
  for (const place of all(".sheet")) {
    const figure = place.closest("figure"), heads = Object.fromEntries(JSON.parse(place.dataset.sheet)), rows = tableOf(`${figure.dataset.figure}.`, place.dataset.table);
    const labels = [...new Set(rows.map(row => row.strategy))].filter(label => !state.hidden.includes(label));
    const button = label => partOf(label) && partOf(label).querySelector(".light");
    const named = label => button(label) ? button(label).textContent : label;
    const best = labels.find(label => button(label) && button(label).dataset.name === lit);
    const before = place.dataset.chosen, chosen = place.dataset.lit !== lit && best ? best : labels.includes(before) ? before : best || labels[0];
    place.dataset.lit = lit;
    place.dataset.chosen = chosen || "";
    const old = place.querySelector("table"), turned = old && all("thead th", old).findIndex(head => head.hasAttribute("aria-sort"));
    const direction = turned >= 0 && old ? all("thead th", old)[turned].getAttribute("aria-sort") : "";
    const words = text => new Option(text).innerHTML.replace(/"/g, "&quot;");
    const decimals = Object.fromEntries(Object.keys(heads).map(name => [name, Math.max(0, ...rows.filter(row => Math.abs(row[name]) < 1000).map(row => (String(row[name] ?? "").split(".")[1] || "").length))]));
    const isText = Object.fromEntries(Object.keys(heads).map(name => [name, rows.some(row => typeof row[name] === "string")]));
    const cells = row => Object.keys(heads).map((name, i) => isText[name] ? `<td class="words">${words(row[name] ?? "–")}</td>` : i ? `<td data-field="${name}"${row[name] === null ? "" : ` data-value="${row[name]}"`}${aligned(row[name], decimals[name])}</td>` : `<th scope="row" data-value="${row[name]}">${row[name]}</th>`);
    const body = rows.filter(row => row.strategy === chosen).map(row => `<tr>${cells(row).join("")}</tr>`);
    const options = labels.map(label => `<option value="${words(label)}"${label === chosen ? " selected" : ""}>${words(named(label))}</option>`);
    place.innerHTML = (labels.length > 1 ? `<label class="of">Strategy <select class="sheet-of">${options.join("")}</select></label>` : "")
      + `<table id="clients-${words(figure.id)}"><thead><tr>${Object.entries(heads).map(([name, head]) => `<th scope="col"${isText[name] ? ' class="words"' : ""}>${words(head)}</th>`).join("")}</tr></thead><tbody>${body.join("")}</tbody></table>`;
    equip(place);
    if (turned >= 0 && direction) sort(place.querySelector("table"), turned, direction);
    else if (!old) sortAsAddressed(place.querySelector("table"), new URLSearchParams(location.hash.slice(1)));
  }
  giveBack();
}

/* Shows a strategy in a table of single clients until another one is highlighted. */
function pick(place, label) {
  Object.assign(place.dataset, {chosen: label, picked: label, lit});
}

/* The number in a cell, or its text; unknown values come last. */
function content(cell) {
  if (!cell) return null;
  if (cell.dataset.value) return Number(cell.dataset.value);
  const text = cell.textContent.trim();
  if (cell.dataset.field !== undefined || text === "–") return null;
  return text;
}

/* Sorts a table by a column: first descending for numbers, then ascending, then in its own order. */
function turn(table, column) {
  const head = all("thead th", table)[column], before = head.getAttribute("aria-sort") || "none";
  const numbers = all("tbody tr", table).some(row => typeof content(row.children[column]) === "number");
  const turns = numbers ? {none: "descending", descending: "ascending", ascending: "none"} : {none: "ascending", ascending: "descending", descending: "none"};
  sort(table, column, turns[before]);
}

function sort(table, column, direction) {
  all("thead th", table).forEach((head, i) => { i === column && direction !== "none" ? head.setAttribute("aria-sort", direction) : head.removeAttribute("aria-sort"); });
  const sign = direction === "descending" ? -1 : 1, rows = all("tbody tr", table);
  rows.sort((a, b) => {
    if (direction === "none") return a.dataset.position - b.dataset.position;
    const x = content(a.children[column]), y = content(b.children[column]);
    if (x === null || y === null) return (x === null) - (y === null) || a.dataset.position - b.dataset.position;
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) || a.dataset.position - b.dataset.position;
  });
  table.tBodies[0].append(...rows);
}

/* --- the state of the page in its address ------------------------------------------------------------------------------------- */

let at = "", restoring = false;

/* Writes what the reader chose into the address, so that it can be sent to others and survives loading the page again. */
function remember() {
  if (restoring) return;
  const parts = new URLSearchParams();
  if (at) parts.set("at", at);
  for (const name of ["seed", "order"]) {
    const control = document.querySelector(`.controls [name="${name}"]`);
    if (control && value(name) !== initial[name]) parts.set(name, value(name));
  }
  if (document.querySelector('.controls input[name="log"]:checked')) parts.set("log", "1");
  if (point() !== "all" && point() !== "0") parts.set("point", point());
  if (lit) parts.set("strategy", lit);
  const off = all(".strategies input").map((box, i) => box.checked ? -1 : i).filter(i => i >= 0);
  if (off.length) parts.set("off", off.join("."));
  for (const input of all("figure .switch input:checked")) if (input.value !== "0") parts.set(input.name, input.value);
  for (const table of all("table[data-equipped]")) {
    const sorted = all("thead th", table).findIndex(head => head.hasAttribute("aria-sort"));
    if (sorted >= 0) parts.set(`sort-${table.id}`, `${sorted}.${all("thead th", table)[sorted].getAttribute("aria-sort")}`);
    const list = listOf(table), gone = list ? all("input", list).map((box, i) => box.checked ? -1 : i + 1).filter(i => i >= 0) : [];
    if (gone.length) parts.set(`columns-${table.id}`, gone.join("."));
  }
  for (const place of all(".sheet")) if (place.dataset.picked && place.dataset.picked === place.dataset.chosen) parts.set(`of-${place.closest("figure").id}`, place.dataset.picked);
  const text = parts.toString();
  try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* pages in frames have no address */ }
}

const initial = {};

/* Notes what controls show that the reader has not touched yet; those of a live page appear with the first runs. */
function noteControls() {
  for (const name of ["seed", "order"]) initial[name] ||= value(name);
}

/* Whether a select has an option. */
const has = (select, chosen) => [...select.options].some(option => option.value === chosen);

/* Sorts a table as the address says. */
function sortAsAddressed(table, parts) {
  const [column, direction] = (parts.get(`sort-${table.id}`) || "").split(".");
  if (["ascending", "descending"].includes(direction) && all("thead th", table)[column]) sort(table, Number(column), direction);
}

/* Sets the page to the state in its address; a live page that is renewed stays where the reader is. */
function restore(scrolls = true) {
  if (!location.hash.includes("=")) {
    try { at = decodeURIComponent(location.hash.slice(1)); } catch { at = ""; } // an address that a program has cut within a letter
    return;
  }
  restoring = true;
  const parts = new URLSearchParams(location.hash.slice(1)), check = selector => { const input = document.querySelector(selector); if (input) input.checked = true; };
  at = parts.get("at") || "";
  if (parts.has("seed")) check(`.controls input[name="seed"][value="${CSS.escape(parts.get("seed"))}"]`);
  if (parts.has("point")) check(`.points input[value="${CSS.escape(parts.get("point"))}"]`);
  const log = document.querySelector('.controls input[name="log"]'), select = document.querySelector('.controls select[name="order"]');
  if (log) log.checked = parts.get("log") === "1";
  if (select && has(select, parts.get("order"))) select.value = parts.get("order");
  lit = all(".strategies .light").some(button => button.dataset.name === parts.get("strategy")) ? parts.get("strategy") : "";
  const off = new Set((parts.get("off") || "").split("."));
  all(".strategies input").forEach((box, i) => { box.checked = !off.has(String(i)); });
  for (const [name, chosen] of parts) {
    if (!name.startsWith("view-")) continue;
    const input = document.querySelector(`figure input[name="${CSS.escape(name)}"][value="${CSS.escape(chosen)}"]`);
    if (!input) continue;
    input.checked = true;
    all("[data-view]", input.closest("figure")).forEach(view => { view.hidden = view.dataset.view !== chosen; });
  }
  for (const table of all("table[data-equipped]")) {
    sortAsAddressed(table, parts);
    const gone = new Set((parts.get(`columns-${table.id}`) || "").split(".")), list = listOf(table);
    if (list && gone.size) { all("input", list).forEach((box, i) => { box.checked = !gone.has(String(i + 1)); }); columns(table); }
  }
  for (const place of all(".sheet")) {
    const label = parts.get(`of-${place.closest("figure").id}`);
    if (label) pick(place, label);
  }
  restoring = false;
  const target = at && document.getElementById(at);
  if (target && scrolls) target.scrollIntoView();
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

/* Columns of tables that only tell how to draw: the texts of numbers, where marks stand, and which of them have a name. */
const ONLY_DRAWN = /_text$|^(text|at|at_log|x2|y2|tip|named|ranked|standing|flat)$/;

async function save(button) {
  const figure = button.closest("figure"), key = figure.dataset.figure;
  const places = all(".view:not([hidden]) .chart", figure).filter(place => !place.closest(".away")), sheet = figure.querySelector(".sheet");
  if (button.dataset.save === "svg") {
    const style = getComputedStyle(document.documentElement);
    const view = figure.querySelector(`.switch input[value="${places[0].closest(".view").dataset.view}"] + span`);
    const name = view ? `${key}-${view.textContent.toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-|-$/g, "")}` : key;
    const svg = places.length === 1 ? await drawing_of(places[0]) : await together(places);
    const solid = svg.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    download(`${name}.svg`, "image/svg+xml", solid);
    return;
  }
  const shown = value => typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value); // no formula of a spreadsheet
  const quote = value => value === null || value === undefined ? "" : /[",\n]/.test(value) ? `"${shown(value).replace(/"/g, '""')}"` : shown(value);
  const names = sheet ? [sheet.dataset.table] : new Set(places.flatMap(place => [...named(chartOf(place.dataset.chart))]));
  for (const name of names) {
    const rows = tableOf(`${key}.`, name);
    if (/_(ends|key|names)$/.test(name) || !rows.length) continue; // these tables only tell where to draw
    const columns = Object.keys(rows[0]).filter(column => !ONLY_DRAWN.test(column) && !(column === "name" && "strategy" in rows[0]));
    download(`${key}-${name}.csv`, "text/csv", [columns.join(","), ...rows.map(row => columns.map(c => quote(row[c])).join(","))].join("\n"));
  }
}

/* --- widths ---------------------------------------------------------------------------------------------------------------- */

let lastWidth = document.documentElement.clientWidth, waiting;
function resized() {
  measureBar();
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

/* Puts the name of the experiment into an address without one: the page stays with it also if another one has the latest round. */
function stay() {
  const address = new URL(location.href), name = document.body.dataset.name;
  if (!name || address.searchParams.has("name")) return;
  address.searchParams.set("name", decodeURIComponent(name));
  history.replaceState(null, "", address);
}

/* Says how the page and its runs are; the same words are not said again, which screen readers would read. */
function report(text, kind = "") {
  const here = document.getElementById("status");
  if (here.textContent !== text) here.textContent = text;
  here.className = `status ${kind}`.trim();
}

async function follow() {
  let wait = 2000;
  for (;;) {
    await new Promise(done => setTimeout(done, wait));
    if (document.hidden) continue;
    try {
      const answer = await fetch(`/state${location.search}`, {cache: "no-store"});
      if (!answer.ok) throw new Error(answer.status);
      const {version, quiet} = await answer.json();
      if (version !== document.body.dataset.live) { await renew(); await askSeed(); }
      report(["Connected. This page follows the runs.", quiet].filter(Boolean).join(" "), quiet && "quiet");
      wait = 2000;
    } catch (error) {
      report(error.message === "403"
        ? "The server has been started again with another address. The page shows the last data that it received; open the new address."
        : "No connection to the server, which ends with its command. The page shows the last data that it received, and continues by itself when the server is back. For a page of finished runs, use fedcohort report.", "lost");
      wait = Math.min(wait * 1.5, 10000);
    }
  }
}

/* What tells the columns of a table from each other while others begin between them: their fields, or else their headings. */
function namesOfColumns(table) {
  const fields = all("tbody tr:first-child > *", table).map(cell => cell.dataset.field);
  return all("thead th", table).map((head, i) => fields[i] && fields.indexOf(fields[i]) === fields.lastIndexOf(fields[i]) ? fields[i] : head.textContent.trim());
}

/* The columns that the reader has hidden in each table of the page, and the one that sorts it. */
function chosenColumns() {
  return all("main table[data-equipped]").filter(table => !table.closest(".sheet")).map(table => {
    const names = namesOfColumns(table), list = listOf(table), heads = all("thead th", table), sorted = heads.findIndex(head => head.hasAttribute("aria-sort"));
    const gone = list ? all("input", list).map((box, i) => box.checked ? "" : names[i + 1]).filter(Boolean) : [];
    return {id: table.id, names, gone, by: names[sorted], direction: sorted < 0 ? "none" : heads[sorted].getAttribute("aria-sort")};
  });
}

/* Hides and sorts the same columns as before in a table that has got new ones: by their names, since the address has numbers. */
function keepColumns({id, names, gone, by, direction}) {
  const table = document.getElementById(id), now = table ? namesOfColumns(table) : names, list = table && listOf(table);
  if (now.join() === names.join()) return;
  if (list) { all("input", list).forEach((box, i) => { box.checked = !gone.includes(now[i + 1]); }); columns(table); }
  sort(table, Math.max(0, now.indexOf(by)), now.includes(by) ? direction : "none");
  remember();
}

/* What tells a foldable part from the others of the page: its place, its kind, and the table or the row that it is about. */
function nameOf(part) {
  const around = part.parentElement.closest("[id]"), table = part.nextElementSibling && part.nextElementSibling.querySelector("table[id]");
  const row = part.querySelector("summary .name");
  return JSON.stringify([around ? around.id : "", part.className, table ? table.id : "", row ? row.textContent : ""]);
}

/* Asks the server for the charts of the chosen seed: a live page has those of one seed only. */
async function askSeed() {
  const seed = value("seed"), here = document.getElementById("status"), drawn = document.querySelector("main figure[data-seed]");
  if (document.body.dataset.live === undefined || !seed || !drawn || drawn.dataset.seed === seed) return;
  here.textContent = `Loading the charts of seed ${seed}.`;
  try { await renew(); } catch { here.textContent = `The charts of seed ${seed} cannot be loaded: no answer from the server.`; }
}

async function renew() {
  const address = new URL(location.href);
  if (value("seed")) address.searchParams.set("seed", value("seed"));
  const answer = await fetch(address, {cache: "no-store"});
  if (!answer.ok) throw new Error(answer.status);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const chosen = all("figure .switch input:checked").map(input => [input.name, input.value]);
  const open = new Map(all("details").map(part => [nameOf(part), part.open]));
  const unchecked = all(".strategies input").filter(box => !box.checked).map(box => box.value), here = point();
  const before = new Map(all(".chart").map(place => [place.dataset.chart, place]));
  const chosenControls = ["seed", "order"].map(name => [name, value(name)]), log = document.querySelector('.controls input[name="log"]:checked');
  const old = {data: state.data, charts: state.charts}, ofTables = chosenColumns(), known = new Set(all(".strategies input").map(box => box.value));
  const giveBack = noteFocus();

  document.getElementById("payload").textContent = fresh.getElementById("payload").textContent;
  document.title = fresh.title;
  read();
  for (const name of ["header.top", ".bar", "main"]) {
    const here = document.querySelector(name), there = fresh.querySelector(name);
    if (here && there) here.replaceWith(document.adoptNode(there));
    else if (there) document.querySelector("main").before(document.adoptNode(there));
  }
  chosen.forEach(([name, value]) => {
    const input = document.querySelector(`figure input[name="${CSS.escape(name)}"][value="${CSS.escape(value)}"]`);
    if (!input) return;
    input.checked = true;
    all("[data-view]", input.closest("figure")).forEach(view => { view.hidden = view.dataset.view !== value; });
  });
  const radio = document.querySelector(`.points input[value="${CSS.escape(here)}"]`);
  if (radio) radio.checked = true;
  for (const [name, chosen] of chosenControls) {
    const radio = document.querySelector(`.controls input[name="${name}"][value="${CSS.escape(chosen)}"]`), select = document.querySelector(`.controls select[name="${name}"]`);
    if (radio) radio.checked = true;
    if (select && has(select, chosen)) select.value = chosen;
  }
  const logBox = document.querySelector('.controls input[name="log"]');
  if (logBox) logBox.checked = Boolean(log);
  equip();
  all("details").forEach(part => { part.open = open.get(nameOf(part)) ?? part.open; });
  noteControls();
  restore(false);
  all(".strategies input").filter(box => known.has(box.value)).forEach(box => { box.checked = !unchecked.includes(box.value); });
  ofTables.forEach(keepColumns);
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
  Object.assign(document.body.dataset, {live: fresh.body.dataset.live, name: fresh.body.dataset.name});
  stay();
  giveBack();
  await drawAll();
}

/* --- start ------------------------------------------------------------------------------------------------------------------ */

document.addEventListener("change", event => {
  const control = event.target;
  if (control.matches(".points input, .strategies input, .controls input[name=seed]")) { hide(); askSeed(); }
  else if (control.matches(".controls input[name=log], .controls select[name=order]")) redraw();
  else if (control.matches(".sheet-of")) { pick(control.closest(".sheet"), control.value); fillSheets(); remember(); }
  else if (control.matches(".switch input")) { switchView(control); remember(); }
});
document.addEventListener("click", event => {
  const button = event.target.closest("[data-save]"), light = event.target.closest(".light");
  if (button) save(button);
  if (light) highlight(light.dataset.name);
});
/* Keeps a tooltip inside the window: on phones, none of the places that Vega tries has room for a wide one. */
function keepInside() {
  const tooltip = document.getElementById("vg-tooltip-element");
  if (!tooltip || !tooltip.classList.contains("visible")) return;
  const box = tooltip.getBoundingClientRect();
  if (box.left < 4) tooltip.style.left = "4px";
  else if (box.right > window.innerWidth - 4) tooltip.style.left = `${Math.max(4, window.innerWidth - 4 - box.width)}px`;
  if (box.top < 4) tooltip.style.top = "4px";
}

for (const name of ["pointerover", "pointermove", "pointerdown", "touchstart", "touchmove"]) document.addEventListener(name, keepInside, {passive: true});
document.addEventListener("pointerover", event => {
  const place = event.target.closest(".chart"), text = event.target.closest("[data-whole]");
  if (place) place.title = text ? text.dataset.whole : "";
});
window.addEventListener("hashchange", () => {
  restore();
  if (location.hash.includes("=")) { redraw(); hide(); askSeed(); } else remember();
});
window.addEventListener("resize", resized);
window.addEventListener("beforeprint", hurry);
window.addEventListener("afterprint", printed);
matchMedia("print").addEventListener("change", ({matches}) => { if (matches) hurry(); else printed(); });
read();
equip();
noteControls();
restore();
mark();
reserve();
state.ready = drawAll();
state.drawAll = drawAll;
if (matchMedia("print").matches) hurry();
if (document.body.dataset.live !== undefined) { stay(); askSeed(); follow(); }
})();

"use strict";
// Shows pages of a document by their routes: from its own templates, or from the server it came from. Draws charts and
// graphs that pages describe as JSON, follows what still goes on, and hears keys. What came from a model or a program
// arrives as escaped HTML or in JSON, and is only ever made text.
(() => {
  const body = document.body;
  const live = "live" in body.dataset;
  const main = document.getElementById("page");
  const status = document.getElementById("status");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const POLL_MS = 1000;
  let shown = { route: null, version: null };
  let views = [];

  const routeOf = (hash) => {
    const text = hash.replace(/^#\/?/, "").split("#")[0];
    try {
      return decodeURIComponent(text);
    } catch {
      return text; // no address of ours
    }
  };
  const routeNow = () => routeOf(location.hash) || body.dataset.home;
  const isDark = () => (body.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";

  // Pages

  async function fetched(route) {
    const answer = await fetch("page?route=" + encodeURIComponent(route), { cache: "no-store" });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  function embedded(route) {
    for (const each of document.querySelectorAll("template[data-route]"))
      if (each.dataset.route === route) return { title: each.dataset.title, node: each.content.cloneNode(true) };
    throw new Error("This page is not in the file. Fix: metaagent view --serve, which has them all.");
  }

  // What the reader has done to a page: what is folded, typed, scrolled, focused, and where keys have gone. A page that
  // follows what goes on keeps it. Things are known by their ids or links, else by their place in what has one.
  const keyOf = (each, kind) => {
    const own = each.id || each.getAttribute("href") || (each.matches(".item") && each.querySelector("a[href]")?.getAttribute("href"));
    if (own) return own;
    const around = each.parentElement.closest("[id]");
    return `${around.id} ${[...around.querySelectorAll(kind)].indexOf(each)}`;
  };
  const KEPT = {
    details: [() => true, (each) => each.open, (each, open) => (each.open = open)],
    "[data-filter]": [(each) => each.value, (each) => each.value, (each, value) => { each.value = value; narrow(each); }],
    ".graph": [() => true, (each) => each.scrollLeft, (each, at) => (each.scrollLeft = at)],
    "pre,.wide,figure": [(each) => each.scrollTop || each.scrollLeft, (each) => [each.scrollLeft, each.scrollTop], (each, at) => each.scrollTo(...at)],
    ".item,[id]": [(each) => each.classList.contains("here"), () => true, mark],
    "a,button,input,select,summary,[tabindex]": [(each) => each === document.activeElement, () => true, (each) => each.focus({ preventScroll: true })],
  };

  function reading() {
    const found = [];
    for (const [kind, [is, state]] of Object.entries(KEPT))
      for (const each of main.querySelectorAll(kind)) if (is(each)) found.push([kind, keyOf(each, kind), state(each)]);
    return found;
  }

  function goOnReading(kept) {
    for (const [kind, [, , set]] of Object.entries(KEPT)) {
      const states = new Map(kept.filter((each) => each[0] === kind).map((each) => each.slice(1)));
      if (!states.size) continue;
      for (const each of main.querySelectorAll(kind)) {
        const key = keyOf(each, kind);
        if (states.has(key)) set(each, states.get(key));
      }
    }
  }

  // A page that fails is tried again once its version is another than the one it was asked for as, if that is known.
  async function show(route, keep, wanted = "") {
    const asked = (shown = { route, version: null });
    let kept = [], at = 0;
    try {
      let page;
      if (live) {
        const { title, html, version } = await fetched(route);
        const made = document.createElement("template");
        made.innerHTML = html;
        page = { title, node: made.content, version };
      } else page = embedded(route);
      if (shown !== asked) return; // somebody has gone on
      asked.version = page.version;
      if (keep) [kept, at] = [reading(), scrollY];
      for (const view of views.splice(0)) view.finalize();
      main.replaceChildren(page.node);
      document.title = page.title;
      document.getElementById("place").textContent = page.title;
      status.textContent = "";
    } catch (error) {
      if (shown !== asked) return;
      asked.version = wanted;
      const told = document.createElement("p");
      told.className = "bad";
      told.textContent = String(error.message || error);
      main.replaceChildren(told);
    }
    enhance();
    goOnReading(kept);
    scrollTo(0, at);
    if (!keep) main.focus({ preventScroll: true });
  }

  async function follow() {
    const { route, version } = shown;
    const typing = main.contains(document.activeElement) && document.activeElement.closest("form");
    const copying = !getSelection().isCollapsed && main.contains(getSelection().anchorNode);
    if (live && version !== null && !document.hidden && !typing && !copying) {
      try {
        const answer = await fetch("version?route=" + encodeURIComponent(route), { cache: "no-store" });
        const told = await answer.text();
        if (answer.ok && told !== version && shown.route === route) await show(route, true, told);
        status.textContent = answer.ok ? "" : told;
      } catch {
        status.textContent = "the server is gone";
      }
    }
    setTimeout(follow, POLL_MS);
  }

  // What is drawn

  const json = (holder) => JSON.parse(holder.querySelector("script[type='application/json']").textContent);
  const colour = (name) => getComputedStyle(body).getPropertyValue(name).trim();

  function enhance() {
    markMissing();
    for (const each of main.querySelectorAll("[data-chart]")) drawChart(each);
    for (const each of main.querySelectorAll("[data-graph]")) drawGraph(each);
    for (const each of main.querySelectorAll("[data-filter]")) each.addEventListener("input", () => narrow(each));
    for (const each of main.querySelectorAll("form[data-route]")) each.addEventListener("submit", submit);
    for (const each of main.querySelectorAll("[data-goto]")) each.addEventListener("click", () => goTo(each.dataset.goto));
  }

  // Links that lead to pages which are not in this file say so.
  const known = live ? null : new Set([...document.querySelectorAll("template[data-route]")].map((each) => each.dataset.route));
  function markMissing() {
    for (const each of main.querySelectorAll("a[href^='#/']")) {
      const route = routeOf(each.getAttribute("href"));
      if (!known || !route || known.has(route)) continue;
      each.classList.add("missing");
      each.title = "not in this file; metaagent view --serve has it";
    }
  }

  function drawChart(holder) {
    const ink = colour("--ink"), line = colour("--line"), faint = colour("--faint");
    const spec = json(holder);
    spec.config = {
      ...spec.config,
      background: "transparent",
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: { labelColor: faint, titleColor: faint, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: 500 },
      legend: { labelColor: ink, titleColor: faint },
      title: { color: ink, anchor: "start", fontSize: 13 },
      text: { color: ink },
      rule: { color: ink },
      header: { labelColor: ink, titleColor: faint },
    };
    const target = document.createElement("div");
    holder.append(target);
    try {
      const compiled = charts.compile(spec).spec;
      const view = new charts.View(charts.parse(compiled, null, { ast: true }), {
        expr: charts.expressionInterpreter,
        renderer: "svg",
        container: target,
        hover: true,
      });
      views.push(view);
      view.addEventListener("click", (_, item) => {
        const route = item && item.datum && item.datum.route;
        if (typeof route === "string") location.hash = "#/" + encodeURI(route);
      });
      view.runAsync();
    } catch (error) {
      target.textContent = "This chart cannot be drawn: " + error.message;
    }
  }

  const SVG = "http://www.w3.org/2000/svg";
  function svg(name, attributes, parent, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  // {nodes: [{id, lines: [text, ...], state, goto, parent?, group?}], edges: [{from, to, label?, state, back?}]}; a node
  // without lines is a point at which edges meet; an edge that goes back does not put its source above its target
  function drawGraph(holder) {
    const told = json(holder);
    const graph = new dagre.graphlib.Graph({ compound: true, multigraph: true });
    const wide = (lines) => Math.max(...lines.map((line, place) => Math.min(line.length, 60) * (place ? 6 : 7.4)), 40) + 22;
    const inside = (id) => told.nodes.filter((node) => node.parent === id);
    graph.setGraph({ rankdir: "TB", nodesep: 24, ranksep: told.nodes.some((node) => node.group) ? 74 : 36, marginx: 8, marginy: 8 });
    for (const node of told.nodes) {
      const around = told.nodes.find((each) => each.id === node.parent);
      const width = Math.max(Math.min(wide(node.lines), 260), around ? wide(around.lines) / Math.max(1, inside(around.id).length - 1) - 30 : 0);
      if (node.group) graph.setNode(node.id, { node });
      else graph.setNode(node.id, node.lines.length ? { node, width, height: 16 + 16 * node.lines.length } : { node, width: 8, height: 8 });
    }
    for (const node of told.nodes) if (node.parent) graph.setParent(node.id, node.parent);
    told.edges.slice().reverse().forEach((edge, place) => { // dagre places leftmost what comes last
      const label = edge.label || "";
      const ends = edge.back ? [edge.to, edge.from] : [edge.from, edge.to];
      graph.setEdge(...ends, { edge, width: label.length * 6 + (edge.from === edge.to ? 30 : 0), height: label ? 14 : 0, labelpos: "c" }, "e" + place);
    });
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
    svg("title", {}, picture, told.title || "graph");
    const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("defs", {}, picture));
    svg("path", { d: "M0 0 L8 4 L0 8 z", class: "tip" }, tip);
    const edges = graph.edges().map((key) => graph.edge(key));
    for (const { edge, points } of edges) {
      const d = edge.from === edge.to ? loop(graph.node(edge.from)) : bent(edge.back ? points.slice().reverse() : points);
      svg("path", { d, class: `edge ${edge.state || ""}`, "marker-end": "url(#tip)" }, picture);
    }
    for (const node of told.nodes.filter((each) => each.group)) drawNode(graph.node(node.id), picture);
    for (const node of told.nodes.filter((each) => !each.group)) drawNode(graph.node(node.id), picture);
    for (const { edge, x, y } of edges) {
      const { x: right, width: w } = graph.node(edge.from);
      const place = edge.from === edge.to ? { x: right + w / 2 + 26, "text-anchor": "start" } : { x, "text-anchor": "middle" };
      if (edge.label) svg("text", { ...place, y: y + 4, class: "less" }, picture, edge.label);
    }
    holder.querySelector("svg")?.remove();
    holder.append(picture);
    scrolls(holder, told.title || "graph");
    const start = told.nodes.find((node) => !node.group);
    if (start) holder.scrollLeft = graph.node(start.id).x - holder.clientWidth / 2;
  }

  // What is wider than its box is scrolled there, with a finger or with arrow keys.
  function scrolls(holder, name) {
    if (holder.scrollWidth <= holder.clientWidth) return ["tabindex", "role", "aria-label"].forEach((each) => holder.removeAttribute(each));
    holder.setAttribute("tabindex", "0");
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", name + ", wider than its box");
  }

  function drawNode({ node, x, y, width: w, height: h }, picture) {
    const place = svg("g", { class: `node ${node.state || ""} ${node.group ? "group" : ""}`, transform: `translate(${x - w / 2},${y - h / 2})` }, picture);
    svg("rect", { width: w, height: h, rx: 6 }, place);
    const most = node.group ? Math.max(w / 5.6, 20) : 42;
    node.lines.forEach((line, index) =>
      svg("text", { x: node.group ? 8 : w / 2, y: (node.group ? 13 : 20) + (node.group ? 13 : 16) * index, class: index ? "less" : "name", "text-anchor": node.group ? "start" : "middle" }, place, line.length > most ? line.slice(0, most - 1) + "…" : line));
    svg("title", {}, place, node.lines.join("\n"));
    if (!node.goto) return;
    place.classList.add("goes");
    place.setAttribute("tabindex", "0");
    place.addEventListener("click", () => goTo(node.goto));
    place.addEventListener("keydown", (event) => event.key === "Enter" && goTo(node.goto));
  }

  const loop = ({ x, y, width: w }) => `M${x + w / 2} ${y - 8} C${x + w / 2 + 30} ${y - 22} ${x + w / 2 + 30} ${y + 22} ${x + w / 2} ${y + 8}`;

  // A line through these points, without corners.
  function bent(points) {
    const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
    const between = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
    const turns = points.slice(1, -1).map((point, index) => `Q${at(point)} ${at(index === points.length - 3 ? points.at(-1) : between(point, points[index + 2]))}`);
    return `M${at(points[0])}` + (turns.length ? turns.join(" ") : ` L${at(points.at(-1))}`);
  }

  // What is done with keys and clicks

  function goTo(id) {
    const target = document.getElementById(id);
    if (!target) return;
    if (target.closest("[hidden]")) showAll();
    target.closest("details")?.setAttribute("open", "");
    if (target.tagName === "DETAILS") target.setAttribute("open", "");
    target.scrollIntoView({ block: "center" });
    mark(target);
  }

  function mark(target) {
    main.querySelectorAll(".here").forEach((each) => each.classList.remove("here"));
    target.classList.add("here");
    if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
  }

  // As viewer.html has it: neither case nor accents count.
  const folded = (text) => text.normalize("NFKD").replace(/\p{M}+/gu, "").toLowerCase().replaceAll("ß", "ss");

  // All inputs for the same rows count together: words that a row holds, or with data-by the value of one of its data.
  function narrow(input) {
    const inputs = [...main.querySelectorAll("[data-filter]")].filter((each) => each.dataset.filter === input.dataset.filter);
    const tests = inputs.map((each) => {
      if (each.dataset.by) return (row) => !each.value || row.dataset[each.dataset.by] === each.value;
      const words = folded(each.value).split(/\s+/).filter(Boolean);
      return (row) => !words.length || words.every((word) => folded(row.textContent).includes(word));
    });
    const rows = main.querySelectorAll(input.dataset.filter);
    let left = 0;
    for (const row of rows) {
      row.hidden = !tests.every((test) => test(row));
      left += !row.hidden;
    }
    const told = document.getElementById(input.dataset.told || "");
    if (told) told.textContent = `${left} of ${rows.length}`;
  }

  // Where somebody goes to a row that is narrowed away, nothing is narrowed any more.
  function showAll() {
    for (const each of main.querySelectorAll("[data-filter]")) each.value = "";
    for (const each of main.querySelectorAll("[data-filter]")) narrow(each);
  }

  function submit(event) {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(given).toString();
    location.hash = "#/" + encodeURI(event.target.dataset.route) + (query ? "?" + encodeURI(query) : "");
  }

  function step(by) {
    const items = [...main.querySelectorAll(".item")].filter((each) => each.offsetParent !== null);
    if (!items.length) return;
    const now = items.findIndex((each) => each.classList.contains("here"));
    const next = items[Math.min(Math.max(now + by, 0), items.length - 1)];
    next.scrollIntoView({ block: "nearest" });
    mark(next);
  }

  function open() {
    const item = main.querySelector(".here");
    const inside = item && (item.matches("a,summary") ? item : item.querySelector("a,summary"));
    inside?.click();
  }

  function unfold() {
    const folds = [...main.querySelectorAll("details")];
    const some = folds.some((each) => !each.open);
    for (const each of folds) each.open = some;
  }

  function theme() {
    body.dataset.theme = isDark() ? "light" : "dark";
    document.documentElement.style.colorScheme = body.dataset.theme;
    redraw();
  }

  function redraw() {
    for (const view of views.splice(0)) view.finalize();
    for (const each of main.querySelectorAll("[data-chart]")) {
      each.querySelector("div")?.remove();
      drawChart(each);
    }
  }

  // Pages before this one in the document: how far going back stays in it.
  let depth = history.state?.depth ?? 0;
  history.replaceState({ depth }, "");

  function moved() {
    if (history.state) depth = history.state.depth;
    else history.replaceState({ depth: ++depth }, "");
    show(routeNow(), false);
  }

  function back() {
    if (depth > 0) history.back();
    else if (routeNow() !== body.dataset.home) location.hash = "#/";
  }

  const keys = document.getElementById("keys");
  const KEYS = {
    j: () => step(1), k: () => step(-1), u: back, g: () => (location.hash = "#/"), e: unfold, t: theme,
    "/": () => [...main.querySelectorAll("[data-filter],input[type=search]")].find((each) => each.offsetParent !== null)?.focus(), "?": () => keys.showModal(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input,select,textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "Enter" && event.target.classList.contains("here")) return open();
    const act = KEYS[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  keys.addEventListener("click", () => keys.close());
  dark.addEventListener("change", redraw);
  addEventListener("resize", () => main.querySelectorAll("[data-graph]").forEach((each) => scrolls(each, json(each).title || "graph")));
  addEventListener("hashchange", moved);
  show(routeNow(), false).then(follow);
})();

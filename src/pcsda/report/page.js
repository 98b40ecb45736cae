"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const POSITIVE = "#d9691e";
  const NEGATIVE = "#2f80c2";
  const OTHERS = [NEGATIVE, "#12947a", "#b3589a", "#8a8a0f", "#7a6fd0", "#c2484f", "#6d7c8c"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-down", "cross", "x", "star"];
  const FIRST = 20;
  // Plotly interprets HTML tags in text; labels must be shown as written.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const whole = (n) => n.toLocaleString("en");
  const percent = (share) =>
    (100 * share).toFixed(share === 0 || share === 1 ? 0 : share < 0.01 ? 2 : 1) + "%";

  let view = data.views[0];
  let place = view.places.decision;
  let kind = "all";
  let shown = FIRST;

  const touch = window.matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? true : "hover",
    // The buttons are listed one by one, because one of the default buttons sends the data to a server.
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    showSendToCloud: false,
    plotlyServerURL: "",
  };

  const margin = { l: 56, r: 12, t: touch ? 36 : 12, b: 48 };
  const withLegend = { ...margin, b: 84 };

  function layout(x, y, more) {
    const axis = (given) => ({ automargin: true, zeroline: false, showline: false, ...given });
    return {
      margin,
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      font: { family: "system-ui, sans-serif", size: 13 },
      hovermode: "closest",
      // On touch screens, dragging on a plot scrolls the page; zooming uses the buttons.
      dragmode: touch ? false : "zoom",
      legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom" },
      modebar: { bgcolor: "transparent", color: "#8b95a1", activecolor: "#5f6b78" },
      xaxis: axis(x),
      yaxis: axis(y),
      ...more,
    };
  }

  const hoverAtThreshold =
    "threshold %{customdata[0]:.2f}<br>%{customdata[1]} misses<br>%{customdata[2]} false alarms<extra></extra>";
  const alongCurve = () => view.thresholds.map((t, i) => [t, view.misses[i], view.alarms[i]]);

  function curve(x, y, customdata) {
    return [
      { x, y, customdata, mode: "lines", line: { color: NEGATIVE, width: 2 }, hovertemplate: hoverAtThreshold, showlegend: false },
      { x: [x[place]], y: [y[place]], mode: "markers", marker: { size: 12, color: POSITIVE, line: { width: 2, color: "#ffffff" } }, hoverinfo: "skip", showlegend: false },
    ];
  }

  const rocX = () => view.alarms.map((n) => n / view.negatives);
  const rocY = () => view.misses.map((n) => 1 - n / view.positives);

  function thresholdLine() {
    const t = view.thresholds[place];
    return [{ type: "line", x0: t, x1: t, y0: 0, y1: 1, yref: "paper", line: { width: 2, dash: "dot" } }];
  }

  function drawScores() {
    const centres = view.edges.slice(1).map((edge, i) => (edge + view.edges[i]) / 2);
    const width = view.edges[1] - view.edges[0];
    const bars = (name, y, color) => ({
      type: "bar", name, x: centres, y, width, marker: { color }, opacity: 0.65,
      hovertemplate: "%{x:.2f}: %{y:.1%}<extra>" + name + "</extra>",
    });
    return Plotly.react("scores",
      [bars("positives", view.bars[0], POSITIVE), bars("negatives", view.bars[1], NEGATIVE)],
      layout({ title: { text: "log-likelihood ratio" } }, { title: { text: "share of the class" }, tickformat: ".0%" },
        { barmode: "overlay", bargap: 0, shapes: thresholdLine(), margin: withLegend }), config);
  }

  function drawDet() {
    const ticks = { tickvals: data.ticks.map((t) => t[0]), ticktext: data.ticks.map((t) => t[1]) };
    // Rates above one half matter only if the curve has no others.
    const middle = data.ticks.find((tick) => tick[1] === "60")[0];
    const range = (values) => {
      const low = Math.min(...values), high = Math.max(...values);
      return [low - 0.15, low < 0 ? Math.min(high, middle) : high + 0.15];
    };
    const equal = { x: [-5, 5], y: [-5, 5], mode: "lines", line: { width: 1, dash: "dot", color: "#8b95a1" }, hoverinfo: "skip", showlegend: false };
    return Plotly.react("det", [...curve(view.det_x, view.det_y, alongCurve()), equal],
      layout({ title: { text: "false alarms, %" }, range: range(view.det_x), tickangle: 0, ...ticks },
        { title: { text: "misses, %" }, range: range(view.det_y), ...ticks }), config);
  }

  function drawRoc() {
    return Plotly.react("roc", curve(rocX(), rocY(), alongCurve()),
      layout({ title: { text: "false alarms" }, tickformat: ".0%", range: [-0.02, 1.02] },
        { title: { text: "positives accepted" }, tickformat: ".0%", range: [-0.02, 1.02] }), config);
  }

  function drawCalibration() {
    const c = view.calibration;
    const off = (ends, sign) => ends.map((end, i) => Math.max(0, sign * (end - c.observed[i])));
    const line = { x: [0, 1], y: [0, 1], mode: "lines", line: { width: 1, dash: "dot", color: "#8b95a1" }, hoverinfo: "skip", showlegend: false };
    const groups = {
      x: c.expected, y: c.observed, customdata: c.count, mode: "markers", marker: { size: 9, color: NEGATIVE }, showlegend: false,
      error_y: { type: "data", symmetric: false, array: off(c.high, 1), arrayminus: off(c.low, -1), color: NEGATIVE, thickness: 1.5 },
      hovertemplate: "%{customdata} rows: expected %{x:.1%}, observed %{y:.1%}<extra></extra>",
    };
    const axis = (text) => ({ title: { text }, tickformat: ".0%", range: [-0.03, 1.03] });
    return Plotly.react("calibration", [line, groups], layout(axis("expected positives"), axis("observed positives")), config);
  }

  function drawSubspace() {
    const points = view.subspace;
    at("subspace").hidden = !points;
    at("subspace-note").textContent = points
      ? "Test rows on the first axes; the class mean is at the origin." +
        (points.centres.length ? " Each name stands at the centre of a subclass and is the label of most of its training rows." : "")
      : "Each label has its own subspace; choose a label above to see it.";
    if (!points) return null;
    const traces = points.kinds.map((group, i) => ({
      x: group.x, y: group.y, name: plain(group.name), text: group.text.map(plain), mode: "markers",
      marker: i === 0
        ? { color: POSITIVE, symbol: "triangle-up", size: 9 }
        : { color: OTHERS[i - 1], symbol: SYMBOLS[i - 1], size: 6, opacity: 0.75 },
      hovertemplate: "%{text}<extra></extra>",
    }));
    // Named subclasses are labelled where they lie, because a legend of twenty entries would not help.
    const annotations = points.centres.map((c) => ({
      x: c.x, y: c.y, text: "<b>" + plain(c.name.replace(/^mostly /, "")) + "</b>", showarrow: false,
      bgcolor: "white", opacity: 0.85, borderpad: 1, hovertext: plain("subclass, " + c.name),
    }));
    // The class of interest is drawn last, on top.
    return Plotly.react("subspace", [...traces.slice(1), traces[0]],
      layout({ title: { text: points.axes[0] }, zeroline: true }, { title: { text: points.axes[1] }, zeroline: true },
        { margin: withLegend, annotations }), config);
  }

  function showCounts() {
    const miss = view.misses[place], alarm = view.alarms[place];
    at("slider").value = place;
    at("threshold").textContent = view.thresholds[place].toFixed(2);
    at("misses").textContent = whole(miss);
    at("alarms").textContent = whole(alarm);
    at("miss-rate").textContent = `of ${whole(view.positives)} (${percent(miss / view.positives)})`;
    at("alarm-rate").textContent = `of ${whole(view.negatives)} (${percent(alarm / view.negatives)})`;
    for (const button of at("marks").children)
      button.setAttribute("aria-pressed", String(view.places[button.dataset.mark] === place));
  }

  function movePoint() {
    Plotly.relayout("scores", { shapes: thresholdLine() });
    Plotly.restyle("det", { x: [[view.det_x[place]]], y: [[view.det_y[place]]] }, [1]);
    Plotly.restyle("roc", { x: [[rocX()[place]]], y: [[rocY()[place]]] }, [1]);
  }

  // Sorts rows by how far they lie on the wrong side of the threshold, the worst first; errors are above zero.
  function byError() {
    const t = view.thresholds[place], list = view.listed;
    return list.llr
      .map((llr, i) => {
        const far = list.positive[i] ? t - llr : llr - t;
        const wrong = list.positive[i] ? llr < t : llr >= t;
        return { i, llr, far, verdict: wrong ? (list.positive[i] ? "miss" : "false alarm") : "right" };
      })
      .filter((row) => kind === "all" || (kind === "miss" ? list.positive[row.i] : !list.positive[row.i]))
      .sort((a, b) => b.far - a.far);
  }

  function showErrors() {
    const rows = byError(), list = view.listed;
    const wrong = rows.filter((row) => row.verdict !== "right").length;
    const cell = (text, name) => {
      const td = document.createElement("td");
      td.textContent = text;
      if (name) td.className = name;
      return td;
    };
    // The reason is a line below its row; the reasons for the first errors are shown open.
    const whyOf = (row, n, width) => {
      const text = list.why && list.why[row.i];
      if (!text) return [];
      const tr = document.createElement("tr"), td = document.createElement("td");
      const box = document.createElement("details"), head = document.createElement("summary"), p = document.createElement("p");
      tr.className = "why";
      td.colSpan = width;
      head.textContent = "Why";
      p.textContent = text;
      box.open = n < 3 && row.verdict !== "right";
      box.append(head, p);
      td.append(box);
      tr.append(td);
      return [tr];
    };
    const made = rows.slice(0, shown).flatMap((row, n) => {
      const tr = document.createElement("tr");
      const verdict = { miss: "miss", "false alarm": "alarm", right: "" }[row.verdict];
      tr.append(cell(n + 1, "number"), cell(list.id[row.i]), cell(list.truth[row.i]));
      if (data.bank) tr.append(cell(list.claim ? list.claim[row.i] : view.name));
      tr.append(cell(row.llr.toFixed(2), "number"), cell(row.verdict, verdict));
      return [tr, ...whyOf(row, n, tr.cells.length)];
    });
    at("errors").tBodies[0].replaceChildren(...made);
    at("more").hidden = rows.length <= shown;
    at("errors-note").textContent = wrong === 0
      ? "No errors among these at the threshold; the closest calls come first."
      : `Ordered by how far each score lies on the wrong side of the threshold, followed by the closest calls.`;
  }

  let drawn = false;
  let waiting = false;
  function moveTo(next) {
    place = Math.max(0, Math.min(view.thresholds.length - 1, next));
    showCounts();
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (drawn) movePoint();
      showErrors();
    });
  }

  function chooseView(number) {
    view = data.views[number];
    place = view.places.decision;
    at("slider").max = view.thresholds.length - 1;
    at("marks").replaceChildren(...Object.keys(view.places).map((mark) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.mark = mark;
      button.textContent = mark;
      button.addEventListener("click", () => moveTo(view.places[mark]));
      return button;
    }));
    showCounts();
    showErrors();
    return drawn ? drawAll() : null;
  }

  const drawAll = () => Promise.all([drawScores(), drawDet(), drawRoc(), drawCalibration(), drawSubspace()]);

  // The text appears at once; the large plotting library is unpacked after the first paint.
  async function startDrawing() {
    const text = atob(at("plotly").textContent);
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    drawn = true;
    return drawAll();
  }

  function sortBy(table, column) {
    const heads = [...table.tHead.rows[0].cells];
    const falling = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value;
    const compare = column === 0
      ? (a, b) => key(a).localeCompare(key(b), "en", { numeric: true })
      : (a, b) => key(a) - key(b);
    const rows = [...table.tBodies[0].rows];
    const empty = rows.filter((row) => key(row) === "");
    const full = rows.filter((row) => key(row) !== "").sort(compare);
    table.tBodies[0].append(...(falling ? full.reverse() : full), ...empty);
  }

  at("slider").addEventListener("input", (event) => moveTo(Number(event.target.value)));
  at("view").addEventListener("change", (event) => chooseView(Number(event.target.value)));
  at("more").addEventListener("click", () => { shown += 60; showErrors(); });
  for (const button of at("kinds").children)
    button.addEventListener("click", () => {
      kind = button.dataset.kind;
      shown = FIRST;
      for (const other of at("kinds").children) other.setAttribute("aria-pressed", String(other === button));
      showErrors();
    });
  for (const table of document.querySelectorAll(".sortable"))
    [...table.tHead.rows[0].cells].forEach((head, column) =>
      head.querySelector("button").addEventListener("click", () => sortBy(table, column)));
  at("labels-section").hidden = !data.bank;
  at("claim-head").hidden = !data.bank;
  if (data.unit === "trial") at("errors").tHead.rows[0].cells[1].textContent = "Trial";

  chooseView(0);
  requestAnimationFrame(() => setTimeout(async () => {
    await startDrawing();
    document.documentElement.dataset.ready = "yes";
  }));
})();

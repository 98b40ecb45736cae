"use strict";
// The search page. Everything that comes from the gallery is inserted as text, never as HTML.

const byId = (id) => document.getElementById(id);
const grid = byId("grid");
const message = byId("message");
// Each page undoes only its own answers, and is the same page after a reload.
const who = sessionStorage.who ??= "page " + Math.random().toString(36).slice(2, 8);
let cards = [];
let at = 0;
let busy = false;
let asked = 0;
let answered = 0;
let sending = Promise.resolve();
let unsent = 0;
let question = "";

function say(text, wrong = false) {
  message.textContent = text;
  message.classList.toggle("wrong", wrong);
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  const answer = await fetch(path, options).catch(() => {
    throw new Error("The search does not answer. If it has ended, start it again and open the address that it prints.");
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

async function lost(figure, place, node) {
  let why = "this file cannot be shown";
  try {
    const answer = await fetch("media/" + place);
    if (!answer.ok) why = await answer.text();
  } catch { /* the page says so below */ }
  node.replaceWith(element("p", why, "lost"));
}

function draw(card) {
  const figure = element("figure", undefined, "card");
  figure.setAttribute("role", "option");
  if (card.kind === "image") {
    const picture = element("img");
    picture.alt = card.id;
    picture.loading = "lazy";
    picture.addEventListener("load", () => picture.classList.toggle("small", picture.naturalWidth < 100));
    picture.addEventListener("error", () => lost(figure, card.place, picture), { once: true });
    picture.src = "media/" + card.place;
    figure.append(picture);
  } else if (card.kind === "audio") {
    const canvas = element("canvas");
    const player = element("audio");
    player.controls = true;
    player.preload = "none";
    player.src = "media/" + card.place;
    figure.append(canvas, player);
    spectrogram(card.place, canvas).catch(() => lost(figure, card.place, canvas));
  } else if (card.text) {
    figure.append(element("p", card.text));
  }
  for (const [name, value] of Object.entries(card.facts)) {
    const line = element("p");
    line.append(element("b", name), " " + value);
    figure.append(line);
  }
  figure.append(element("figcaption", card.id));
  return figure;
}

// Squared magnitude of the Fourier transform of a window whose length is a power of two.
function spectrum(wave) {
  const n = wave.length, re = Float64Array.from(wave), im = new Float64Array(n);
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j]] = [re[j], re[i]];
  }
  for (let size = 2; size <= n; size <<= 1) {
    for (let start = 0; start < n; start += size) {
      for (let k = 0; k < size / 2; k++) {
        const turn = -2 * Math.PI * k / size, c = Math.cos(turn), s = Math.sin(turn);
        const a = start + k, b = a + size / 2;
        const x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
        re[b] = re[a] - x; im[b] = im[a] - y; re[a] += x; im[a] += y;
      }
    }
  }
  return re.subarray(0, n / 2).map((value, i) => value * value + im[i] * im[i]);
}

async function spectrogram(place, canvas) {
  const answer = await fetch("media/" + place);
  if (!answer.ok) throw new Error("no sound");
  const context = new OfflineAudioContext(1, 1, 22050);
  const wave = (await context.decodeAudioData(await answer.arrayBuffer())).getChannelData(0);
  const size = 256, columns = 120;
  canvas.width = columns;
  canvas.height = size / 2;
  const paint = canvas.getContext("2d"), image = paint.createImageData(columns, size / 2);
  for (let x = 0; x < columns; x++) {
    const start = Math.floor(Math.max(wave.length - size, 0) * x / (columns - 1));
    const part = new Float64Array(size);
    for (let i = 0; i < size && start + i < wave.length; i++) {
      part[i] = wave[start + i] * (0.5 - 0.5 * Math.cos(2 * Math.PI * i / size));
    }
    spectrum(part).forEach((power, i) => {
      const shade = Math.max(0, Math.min(255, 255 * (Math.log10(power + 1e-6) + 4) / 6));
      const pixel = 4 * ((size / 2 - 1 - i) * columns + x);
      image.data.set([shade, shade * 0.7, 90 + shade * 0.3, 255], pixel);
    });
  }
  paint.putImageData(image, 0, 0);
}

// Play or pause the sound of the selected card.
function play() {
  const chosen = cards[at]?.node.querySelector("audio");
  for (const player of grid.querySelectorAll("audio")) if (player !== chosen) player.pause();
  if (chosen?.paused) chosen.play().catch(() => { /* the card says why */ });
  else chosen?.pause();
}

function select(place, scroll = true) {
  if (!cards.length) return;
  at = Math.max(0, Math.min(place, cards.length - 1));
  cards.forEach((card, i) => card.node.setAttribute("aria-selected", String(i === at)));
  if (scroll) cards[at].node.scrollIntoView({ block: "nearest" });
}

function perRow() {
  return Math.max(1, getComputedStyle(grid).gridTemplateColumns.split(" ").length);
}

async function next() {
  if (busy) return;
  busy = true;
  say("Learning …");
  try {
    await sending;
    const found = await ask(`next?n=24&how=${byId("how").value}`);
    cards = found.cards.map((card) => ({ ...card, node: draw(card), value: null }));
    grid.classList.toggle("text", cards.some((card) => card.kind === "text"));
    grid.replaceChildren(...cards.map((card) => card.node));
    cards.forEach((card, i) => card.node.addEventListener("click", () => select(i, false)));
    select(0, false);
    const sound = cards.some((card) => card.kind === "audio") ? " p plays it." : "";
    const audit = byId("how").value === "random" ? ` Answer all ${cards.length}: an audit counts once it is complete.` : "";
    question = cards.length ? `Is the marked row what you are looking for?${sound}${audit}` : "No row is left to show.";
    say(question);
    if (cards.length) grid.focus({ preventScroll: true });
    message.scrollIntoView({ block: "nearest" }); // a new screen begins at its top
  } catch (error) {
    say(String(error.message || error), true);
    return;
  } finally {
    busy = false;
  }
  // The rows are visible, so keys work, however long the numbers take to arrive.
  await refresh().catch((error) => say(String(error.message || error), true));
}

function mark(card, value) {
  card.value = value;
  if (value) card.node.dataset.value = value;
  else delete card.node.dataset.value;
}

// Give one answer to some cards of the screen. It is one request, so that undo takes it back as one.
function answer(value, places = [at]) {
  const given = places.map((place) => cards[place]).filter(Boolean);
  if (busy || !given.length) return;
  const before = given.map((card) => card.value);
  given.forEach((card) => mark(card, value));
  // What undo said is out of date, but an error stays.
  if (message.textContent !== question && !message.classList.contains("wrong")) say(question);
  const body = { place: given.map((card) => card.place), value, who };
  // Answers are sent one after the other, so that undo removes the last one.
  unsent += 1;
  sending = sending.then(() => ask("label", body)).then(count).catch((error) => {
    given.forEach((card, i) => mark(card, before[i]));
    say(`This answer was not stored: ${error.message || error}`, true);
  }).finally(() => { unsent -= 1; });
  const open = cards.findIndex((other, i) => i > places.at(-1) && !other.value);
  const first = cards.findIndex((other) => !other.value);
  if (first < 0) next();
  else select(open < 0 ? first : open);
}

async function undo() {
  if (busy) return;
  await sending;
  try {
    const { places, values } = await ask("undo", { who });
    const shown = cards.map((card, i) => i).filter((i) => places.includes(cards[i].place));
    const gone = places.length > 1 ? `those ${places.length} rows` : "that row";
    if (!shown.length) {
      say(places.length ? `Undone; ${gone} will be shown again.` : "This page has nothing to undo.");
    } else {
      // An earlier answer to the same row counts again.
      shown.forEach((i) => mark(cards[i], values[places.indexOf(cards[i].place)]));
      select(shown[0]);
      say("Undone.");
    }
    if (!cards.length && places.length) await next();
    else await refresh();
  } catch (error) {
    say(String(error.message || error), true);
  }
}

function rest() {
  answer("no", cards.map((card, i) => i).filter((i) => !cards[i].value));
}

function count(state) {
  byId("found").textContent = state.found;
  byId("shown").firstChild.textContent = state.shown;
}

const percent = (share) => `${share < 5e-5 ? 0 : Number((100 * share).toPrecision(2))}%`;

async function refresh() {
  const turn = ++asked;
  let state;
  try {
    state = await ask("state?alarms=" + byId("alarms").value);
  } finally {
    answered = Math.max(answered, turn);
  }
  if (turn < asked) return; // a later request will bring newer numbers
  count(state);
  byId("rows").textContent = `of ${state.rows}`;
  const left = byId("remaining"), guess = state.remaining;
  left.textContent = guess ? Math.round(guess.count) : "?";
  if (guess) left.append(element("small", `${guess.low} to ${guess.high}, based on ${guess.basis}`));
  byId("stop").textContent = state.stop;
  curve(state.curve, state.shown);
  const t = state.threshold;
  byId("threshold").textContent = !t ? state.note :
    `A log-likelihood ratio of ${t.value.toPrecision(3)} accepts ${percent(t.false_alarms)} of the negatives ` +
    `(${percent(t.false_alarms_interval[0])} to ${percent(t.false_alarms_interval[1])})` +
    ` and misses ${percent(t.misses)} of the class ` +
    `(${percent(t.misses_interval[0])} to ${percent(t.misses_interval[1])})` +
    `.${t.vague} ${t.accepted} of ${t.rows} rows are accepted.`;
}

function curve(values, shown) {
  const svg = byId("curve"), make = (tag, set, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(set)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const most = Math.max(1, ...values), step = 600 / Math.max(1, values.length);
  const points = [0, ...values].map((value, i) => `${i * step},${200 - 200 * value / most}`).join(" ");
  svg.replaceChildren(
    make("path", { class: "axis", d: "M0 0V200H600" }),
    make("polyline", { class: "curve", points }),
    make("text", { x: -6, y: 6, "text-anchor": "end" }, values.length ? most : ""),
    make("text", { x: 600, y: 220, "text-anchor": "end" }, `${shown} shown`),
  );
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, input, audio, a")) return;
  const keys = {
    y: () => answer("yes"), n: () => answer("no"), s: () => answer("skip"), u: undo, r: rest, p: play,
    ArrowLeft: () => select(at - 1), ArrowRight: () => select(at + 1),
    ArrowUp: () => select(at - perRow()), ArrowDown: () => select(at + perRow()),
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
for (const button of document.querySelectorAll("#actions [data-value]")) {
  button.addEventListener("click", () => answer(button.dataset.value));
}
// Whoever leaves the page while answers are on their way would lose them.
window.addEventListener("beforeunload", (event) => { if (unsent) event.preventDefault(); });
byId("undo").addEventListener("click", undo);
byId("rest").addEventListener("click", rest);
byId("how").addEventListener("change", next);
byId("alarms").addEventListener("change", () => refresh().catch((error) => say(String(error.message), true)));
next();

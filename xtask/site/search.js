// Search over the pages of the site, in the browser: phrases that ask for a page first, then whole words of titles, then
// beginnings, then words of the text.

// What the forms of an English word have in common, as `symptom::stem` of the tables does it: `hang` of `hangs`, `hanging`.
function stem(word) {
  const without = (text, ending, least) =>
    text.endsWith(ending) && text.length - ending.length >= least ? text.slice(0, -ending.length) : null;
  const singular = without(word, "s", 3);
  const rest = without(word, "ing", 4) ?? without(word, "ed", 4) ?? (singular && !/[sui]$/.test(singular) ? singular : word);
  return without(rest, "e", 4) ?? rest;
}

// Stems of the words between blanks: `shm-space` is one word, a name of its own.
function stems(text) {
  return text.toLowerCase().split(/\s+/u).map((word) => stem(word.replace(/^[^\p{L}\p{N}/]+|[^\p{L}\p{N}/]+$/gu, ""))).filter((word) => word);
}

// How well a query fits the phrases of a page: all of it, a phrase within it in one piece, or all words of a phrase.
function phrase(words, phrases) {
  let best = 0;
  for (const own of phrases) {
    if (!own.length || own.length > words.length || !own.every((word) => words.includes(word))) continue;
    const text = own.join(" ");
    const together = ` ${words.join(" ")} `.includes(` ${text} `);
    const whole = together && own.length === words.length;
    best = Math.max(best, text.length + (whole ? 1000 : together ? 400 : 100));
  }
  return best;
}

function search(index, query) {
  const words = query.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word);
  if (!words.length) return [];
  const whole = query.toLowerCase().trim();
  const asked = stems(query);
  const found = [];
  for (const row of index) {
    const title = row[0].toLowerCase();
    const own = title.split(/[^\p{L}\p{N}_]+/u);
    const text = " " + row[3] + " ";
    let score = 0;
    for (const word of words) {
      if (own.includes(word)) score += 100 - Math.min(40, own.indexOf(word));
      else if (text.includes(" " + word + " ")) score += 20;
      else if (own.some((one) => one.startsWith(word))) score += 10;
      else if (text.includes(" " + word)) score += 3;
      else if (title.includes(word)) score += 2;
      else { score = -1; break; }
    }
    row.phrases ??= (row[4] || []).map(stems);
    const fit = phrase(asked, row.phrases);
    if (fit) score = Math.max(score, 0) + fit;
    if (score < 0) continue;
    if (title.includes(whole)) score += 60;
    if (own.slice(0, words.length).join(" ") === words.join(" ")) score += 120;
    // Short titles say less besides.
    found.push([score - own.length / 4, row]);
  }
  found.sort((a, b) => b[0] - a[0] || (a[1][1] < b[1][1] ? -1 : 1));
  return found.slice(0, 30).map((one) => one[1]);
}

if (typeof document !== "undefined") {
  const box = document.getElementById("search");
  const list = document.getElementById("found");
  const up = document.body.dataset.up;
  const show = () => {
    list.replaceChildren(...search(window.RINGLEADER_INDEX, box.value).map(([title, path, kind]) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = up + path;
      link.textContent = title;
      const small = document.createElement("small");
      small.textContent = " " + kind;
      item.append(link, small);
      return item;
    }));
  };
  box.addEventListener("input", show);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") list.querySelector("a")?.click();
    if (event.key === "Escape") { box.value = ""; show(); }
  });
}
if (typeof module !== "undefined") module.exports = { search };

// Search over the pages of the site, in the browser: whole words of titles first, then beginnings, then words of the text.
function search(index, query) {
  const words = query.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word);
  if (!words.length) return [];
  const whole = query.toLowerCase().trim();
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

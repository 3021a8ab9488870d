// How Sphinx's search ranks what it finds: a chapter or section first whose title holds the query.
window.Scorer = {
  score([docname, title, , , score]) {
    const words = (text) =>
      ` ${text
        .toLowerCase()
        .replace(/[^\p{L}\p{N}]+/gu, " ")
        .trim()} `;
    const query = words(new URLSearchParams(location.search).get("q") ?? "");
    const own = words(title.split(" > ").at(-1)); // a section without its chapter
    if (own.includes(query)) score += 100 * (query.length / own.length);
    if (/^chapters\/\d/.test(docname)) score += 60; // what teaches before what lists
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2, // Sphinx's own
};

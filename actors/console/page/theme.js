// Runs before the page is drawn, so that it does not flash in the other theme.
try {
  const kept = localStorage.getItem("console-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch { /* no storage: the system's theme */ }

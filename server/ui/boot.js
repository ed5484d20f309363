// SPDX-License-Identifier: Apache-2.0
// A script or a style that does not come (a network that has just changed, a server that is being restarted) leaves the
// page empty: of modules none runs where one is missing. This script needs no other one. It loads the page again, once,
// and after that it says what is missing. Where it has not come itself, index.html has a line that appears late.
{
  const TRIED = "cairn-loaded-again", PAUSE_MS = 1000, TRUST_MS = 60000; // after so long it is another failure
  let missing = null;

  function show() {
    const again = Date.now() - Number(sessionStorage.getItem(TRIED) || 0) > TRUST_MS;
    const words = document.createElement("p"), button = document.createElement("button");
    words.setAttribute("role", "alert");
    words.className = "problem";
    words.textContent = `This page has not come whole: ${missing}. ${again ? "It is loaded again …"
      : "The server does not answer, or the network is away."}`;
    button.type = "button";
    button.textContent = "Load it again";
    button.addEventListener("click", () => location.reload());
    document.getElementById("main").replaceChildren(words, button);
    if (!again) return;
    sessionStorage.setItem(TRIED, Date.now());
    setTimeout(() => location.reload(), PAUSE_MS);
  }

  addEventListener("error", event => {
    const address = event.target.src || event.target.href;
    if (!address || missing) return; // an error within a script has no address
    missing = `${address.split("/").pop()} failed`;
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", show);
    else show();
  }, true);
}

// A page whose socket is not let in asks why: whoever is not signed in any more goes to the form.
// The server tells open sockets by itself; this is for those it cannot reach.
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  try {
    const answer = await fetch("/signed-in", { cache: "no-store" });
    if (answer.status === 401) window.location.assign("/sign-in");
  } catch {
    // The console itself cannot be reached; the page says so already.
  }
}, 1000);

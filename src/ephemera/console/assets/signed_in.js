// A page whose WebSocket is refused asks why; if it is signed out, it opens the sign-in form.
// The server notifies open sockets itself; this is for pages it cannot reach.
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  try {
    const answer = await fetch("/signed-in", { cache: "no-store" });
    if (answer.status === 401) window.location.assign("/sign-in");
  } catch {
    // The console cannot be reached; the page already says so.
  }
}, 1000);

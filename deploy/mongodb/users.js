// Run once by the image, on an empty data folder: the user of feed, who reaches only feed's database.
db = db.getSiblingDB("feed");
db.createUser({
  user: "feed",
  pwd: require("fs").readFileSync("/run/secrets/mongodb-feed", "utf8").trim(),
  roles: [{ role: "readWrite", db: "feed" }],
});

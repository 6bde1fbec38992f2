-- The shared part of all scripts of memories. A namespace is one hash: key -> record. A record is a head of four numbers
-- and a length, then the value in JSON of that length, then vectors.
--   expiry in milliseconds, TTL in milliseconds or 0, creation and last change in microseconds, the value's length
-- KEYS[1]  the hash of the namespace
local key = KEYS[1]
local HEAD, SIZE = '>ddddI4', 36
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

-- The head of a record: expiry, TTL, creation, change, length; nothing if it is not a record, or has expired.
local function head(record)
  if not record or #record < SIZE then return end
  local expiry, ttl, created, changed, length = struct.unpack(HEAD, record)
  if expiry > now then return expiry, ttl, created, changed, length end
end

-- Whether a record has expired; other bytes, which another version may have written, have not.
local function expired(record)
  return #record >= SIZE and struct.unpack('>d', record) <= now
end

-- Lets the hash live at least until then.
local function live_until(expiry)
  if expiry > redis.call('PEXPIRETIME', key) then redis.call('PEXPIREAT', key, string.format('%.0f', expiry)) end
end

-- Starts the TTL of a live record again, if it has one; the record that is then stored.
local function renew(name, record)
  local _, ttl, created, changed, length = head(record)
  if not (ttl and ttl > 0) then return record end
  record = struct.pack(HEAD, now + ttl, ttl, created, changed, length) .. string.sub(record, SIZE + 1)
  redis.call('HSET', key, name, record)
  live_until(now + ttl)
  return record
end

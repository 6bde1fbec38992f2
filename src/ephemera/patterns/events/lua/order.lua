-- Functions for streams that are ordered by key. Their sorted set has every event that was delivered and is not
-- finished, as 'digest of group : digest of key : id', in lexical order. The first event of a lane (a group's events of
-- one key) is the only one that may be handled; it stays the first until it is acknowledged.
local function lanes_of(group)
  return redis.sha1hex(group) .. ':'
end

local function lane_of(group, id, fields)
  local key = id  -- an event without a key, which another program wrote, waits for no other
  for at = 1, #fields, 2 do
    if fields[at] == '_key' then key = fields[at + 1] end
  end
  return lanes_of(group) .. redis.sha1hex(key) .. ':'
end

-- Both parts of an id have up to 20 digits, and are compared as text.
local function lane_member(lane, id)
  local time, number = string.match(id, '(%d+)-(%d+)')
  return lane .. string.rep('0', 20 - #time) .. time .. '-' .. string.rep('0', 20 - #number) .. number
end

-- The first event of a lane as XPENDING has it; forgets those that are not pending any more.
local function first_of(lane, order, stream, group)
  while true do
    local member = redis.call('ZRANGE', order, '[' .. lane, '(' .. lane .. '~', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not member then return nil end
    local id = string.gsub(string.sub(member, #lane + 1), '0*(%d+)%-0*(%d+)', '%1-%2')
    local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
    if pending then return pending end
    redis.call('ZREM', order, member)
  end
end

-- Whether an event may be handled now: none of its key before it is unfinished.
local function enter_lane(order, stream, group, id, fields, lifetime)
  local lane = lane_of(group, id, fields)
  redis.call('ZADD', order, 0, lane_member(lane, id))
  redis.call('PEXPIRE', order, lifetime)
  return first_of(lane, order, stream, group)[1] == id
end

-- Makes the next event of a lane due, as one that was never delivered, and returns its id.
local function make_next_due(lane, order, stream, group, due)
  local pending = first_of(lane, order, stream, group)
  if not pending then return nil end
  redis.call('XCLAIM', stream, group, pending[2], 0, pending[1], 'IDLE', due, 'RETRYCOUNT', 0, 'JUSTID')
  return pending[1]
end

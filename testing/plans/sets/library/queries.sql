-- movies_of_performer
select m.title from performer p join casting c on c.performer_id = p.performer_id join movie m on m.movie_id = c.movie_id where p.last_name = 'Last17' order by m.title;
-- performers_of_movie
select p.first_name, p.last_name from movie m join casting c on c.movie_id = m.movie_id join performer p on p.performer_id = c.performer_id where m.title = 'DARK TITLE1';
-- movies_by_genre
select g.name, count(*) from genre g join movie_genre mg on mg.genre_id = g.genre_id group by g.name order by 2 desc;
-- minutes_by_genre
select g.name, avg(m.minutes) from genre g join movie_genre mg on mg.genre_id = g.genre_id join movie m on m.movie_id = mg.movie_id group by g.name;
-- busiest_performers
select p.performer_id, p.first_name, p.last_name, count(*) as n from performer p join casting c on c.performer_id = p.performer_id group by p.performer_id order by n desc limit 10;
-- same_last_names
select last_name, count(*) from performer group by last_name having count(*) > 2;
-- members_of_land
select m.first_name, m.last_name, m.email from member m join place p on p.place_id = m.place_id join town t on t.town_id = p.town_id join land l on l.land_id = t.land_id where l.name = 'Land20';
-- member_by_name
select * from member where last_name = 'Name300';
-- members_like
select member_id, last_name from member where last_name like 'Name30%';
-- out_now
select m.title, k.last_name, p.phone, l.lent_at from loan l join member k on k.member_id = l.member_id join place p on p.place_id = k.place_id join copy c on c.copy_id = l.copy_id join movie m on m.movie_id = c.movie_id where l.returned_at is null and l.lent_at + interval m.days day < '2005-08-01' order by m.title limit 5;
-- in_stock
select c.copy_id from copy c where c.movie_id = 77 and c.branch_id = 1 and not exists (select * from loan l where l.copy_id = c.copy_id and l.returned_at is null);
-- loans_of_member
select l.lent_at, m.title from loan l join copy c on c.copy_id = l.copy_id join movie m on m.movie_id = c.movie_id where l.member_id = 148 order by l.lent_at;
-- balance_of_member
select sum(f.amount) from fee f where f.member_id = 148 and f.paid_at <= '2005-07-15';
-- fees_by_member
select k.member_id, k.last_name, sum(f.amount) as total from member k join fee f on f.member_id = k.member_id group by k.member_id order by total desc limit 10;
-- fees_by_clerk_in_month
select s.first_name, s.last_name, sum(f.amount) from clerk s join fee f on f.clerk_id = s.clerk_id where f.paid_at >= '2005-06-01' and f.paid_at < '2005-07-01' group by s.clerk_id;
-- sales_by_branch
select t.name, l.name, sum(f.amount) from fee f join loan n on n.loan_id = f.loan_id join copy c on c.copy_id = n.copy_id join branch b on b.branch_id = c.branch_id join place p on p.place_id = b.place_id join town t on t.town_id = p.town_id join land l on l.land_id = t.land_id group by b.branch_id;
-- sales_by_genre
select g.name, sum(f.amount) as total from fee f join loan l on l.loan_id = f.loan_id join copy c on c.copy_id = l.copy_id join movie_genre mg on mg.movie_id = c.movie_id join genre g on g.genre_id = mg.genre_id group by g.name order by total desc;
-- most_lent
select m.title, count(*) as n from movie m join copy c on c.movie_id = m.movie_id join loan l on l.copy_id = c.copy_id group by m.movie_id order by n desc limit 10;
-- never_in_stock
select m.title from movie m left join copy c on c.movie_id = m.movie_id where c.copy_id is null;
-- never_lent
select c.copy_id from copy c left join loan l on l.copy_id = c.copy_id where l.loan_id is null;
-- loans_of_day
select * from loan where lent_at >= '2005-06-10' and lent_at < '2005-06-11';
-- loans_of_half_year
select count(*) from loan where lent_at >= '2005-05-24' and lent_at < '2005-07-20';
-- loan_range
select loan_id, lent_at, returned_at from loan where loan_id between 1000 and 1200;
-- loan_range_wide
select loan_id, lent_at, returned_at from loan where loan_id between 1000 and 1400 order by loan_id desc;
-- loan_by_ids
select * from loan where loan_id in (3, 77, 500, 501, 900, 1201);
-- newest_loans
select * from loan order by lent_at desc limit 10;
-- copies_per_branch
select branch_id, count(*) from copy group by branch_id;
-- copies_of_branch_and_movies
select branch_id, movie_id, count(*) from copy where movie_id between 10 and 30 group by branch_id, movie_id;
-- titles_in_order
select title from movie order by title limit 20;
-- titles_from
select movie_id, title, rate from movie where title >= 'SECRET' and title < 'WILD';
-- titles_like
select title, rating from movie where title like 'QUIET TITLE1%';
-- long_movies_of_genre
select m.title from movie m join movie_genre mg on mg.movie_id = m.movie_id where mg.genre_id = 5 and m.minutes > 170;
-- movies_in_subquery
select title from movie where movie_id in (select movie_id from casting where performer_id in (select performer_id from performer where last_name = 'Last50'));
-- tongue_of_movies
select t.name, count(*) from movie m join tongue t on t.tongue_id = m.tongue_id group by t.name;
-- performer_pairs
select a.performer_id, b.performer_id, count(*) from casting a join casting b on a.movie_id = b.movie_id and a.performer_id < b.performer_id group by 1, 2 having count(*) > 3;
-- late_members
select k.member_id, count(*) from member k join loan l on l.member_id = k.member_id join copy c on c.copy_id = l.copy_id join movie m on m.movie_id = c.movie_id where timestampdiff(day, l.lent_at, l.returned_at) > m.days group by k.member_id;
-- above_average_rate
select title from movie m where rate > (select avg(rate) from movie x where x.rating = m.rating);
-- max_fee_of_members
select member_id, max(amount) from fee group by member_id;
-- first_loan_of_members
select k.member_id, (select min(l.lent_at) from loan l where l.member_id = k.member_id) from member k where k.is_active;
-- distinct_towns
select distinct t.town_id from town t join place p on p.town_id = t.town_id join member k on k.place_id = p.place_id where k.branch_id = 2;
-- two_keys
select count(*) from loan where member_id = 5 or copy_id = 77;
-- delete_fee_of_member
delete from fee where member_id = 300 and amount > 5;
-- update_late
update loan set returned_at = '2005-12-01' where returned_at is null and member_id between 10 and 20;
